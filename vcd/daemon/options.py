"""The options of ``vcd run``: one declaration per flag, which is also an environment variable.

vc-scheduler's flags have their names and defaults (Volcano ``cmd/scheduler/app/options``, Kubernetes component-base's
leader election, klog). Flags without a meaning here are accepted, so that vc-scheduler's Deployment can run vcd. A flag
that restricts scheduling (fewer nodes, no preemption by priority) is obeyed or refused, never ignored.
"""

from __future__ import annotations

import dataclasses
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from vcd.eventlog.archive.stores import ArchiveError, check_place
from vcd.model.quantity import QuantityError, parse_units
from vcd.model.selectors import is_qualified_name
from vcd.model.wording import SECOND, did_you_mean
from vcd.scheduling.framework.arguments import MEANINGS, READERS, parse_duration
from vcd.serving.host_header import is_host
from vcd.state.records import Settings

Kind = Literal["text", "texts", "list", "bool", "int", "float", "duration", "age", "size", "path"]

ENVIRONMENT_PREFIX = "VCD_"
PODGROUP, QUEUE = CONTROLLERS = ("podgroup", "queue")
"""Values of ``--controllers``."""
_PAGE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[\w.~%/-]*)?")
_LONG_UNITS = {"d": 24 * 3600 * SECOND, "w": 7 * 24 * 3600 * SECOND}


class OptionError(ValueError):
    """A flag has an invalid value. The message names the flag and states what to change."""


@dataclass(frozen=True)
class Flag:
    """One flag: ``name`` without dashes, ``default`` as it is written, ``doc`` for the help text.

    ``kind`` is how it is parsed: ``text``; ``texts`` (repeatable); ``list`` (repeatable, and split at commas);
    ``bool``; ``int``; ``float``; ``duration`` (seconds, float); ``age`` (nanoseconds, None for 0); ``size`` (bytes,
    None for 0); ``path`` (None for an empty text). A number must be at least ``low`` and more than ``above``;
    ``choices`` are all values that a text may have. ``idle`` states why a flag has no effect in vcd. ``refusal`` is for
    an idle flag that restricts vc-scheduler: why values other than the default are refused, and what to do instead.
    """

    name: str
    kind: Kind
    default: str
    doc: str = ""
    low: float | None = None
    above: float | None = None
    choices: tuple[str, ...] = ()
    idle: str = ""
    refusal: str = ""

    @property
    def variable(self) -> str:
        """Return the environment variable for this flag."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")

    @property
    def written(self) -> str:
        """Return the flag with its dashes."""
        return f"-{self.name}" if len(self.name) == 1 else f"--{self.name}"

    def read(self, texts: Sequence[str], source: str = "") -> Any:
        """Parse the given texts; the last one wins if the flag has one value. Raises OptionError naming ``source``."""
        try:
            value = _READERS[self.kind](texts)
        except ValueError as error:
            words = str(error) if isinstance(error, QuantityError) else f"{texts[-1]!r} is not {_MEANINGS[self.kind]}"
            raise OptionError(f"{source or self.written}: {words}") from None
        self._check(value, source or self.written)
        return value

    def _check(self, value: Any, source: str) -> None:
        for each in (value if isinstance(value, tuple) else [value]) if self.choices else ():
            if each not in self.choices:
                hint = did_you_mean(each, self.choices)
                raise OptionError(f"{source}: {each!r} is not one of {', '.join(self.choices)}{hint}")
        if self.refusal and value != _READERS[self.kind]([self.default]):
            raise OptionError(f"{source}: {str(value).lower()!r} is not supported: {self.refusal}")
        if value is None:
            return
        if self.low is not None and value < self.low:
            raise OptionError(f"{source}: must be at least {self.low:g}")
        if self.above is not None and value <= self.above:
            raise OptionError(f"{source}: must be more than {self.above:g}")


def _flag(name: str, kind: Kind, default: str, doc: str, **limits: Any) -> Any:
    flag = Flag(name, kind, default, doc, **limits)
    return dataclasses.field(default=flag.read([default] if default else []), metadata={"flag": flag})


# --- reading ----------------------------------------------------------------------------------------------------------


def _text(texts: Sequence[str]) -> str:
    return texts[-1] if texts else ""


def _nanoseconds(texts: Sequence[str]) -> int:
    long = re.fullmatch(r"([0-9]{1,6})([dw])", texts[-1])
    return int(long[1]) * _LONG_UNITS[long[2]] if long else parse_duration(texts[-1])


def _age(texts: Sequence[str]) -> int | None:
    nanoseconds = _nanoseconds(texts)
    if nanoseconds < 0:
        raise ValueError
    return nanoseconds or None


def _parse_limit(text: str) -> tuple[Literal["age", "size"], int | None]:
    """Parse an age in nanoseconds or a size in bytes; None for 0. Raises ValueError."""
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?([kMGTP]i?)|0", text):
        return "size", parse_units(text) or None
    return "age", _age([text])


_READERS: Mapping[Kind, Callable[[Sequence[str]], Any]] = {
    "text": _text,
    "texts": tuple,
    "list": lambda texts: tuple(part.strip() for text in texts for part in text.split(",") if part.strip()),
    "bool": lambda texts: READERS["bool"](texts[-1]),
    "int": lambda texts: READERS["int"](texts[-1]),
    "float": lambda texts: READERS["float"](texts[-1]),
    "duration": lambda texts: _nanoseconds(texts) / SECOND,
    "age": _age,
    "size": lambda texts: parse_units(texts[-1]) or None,
    "path": lambda texts: Path(texts[-1]) if _text(texts) else None,
}
_MEANINGS: Mapping[str, str] = {
    "bool": MEANINGS["bool"],
    "int": MEANINGS["int"],
    "float": MEANINGS["float"],
    "duration": "a duration such as 500ms, 1m30s or 7d",
    "age": "a duration such as 36h or 14d, or 0 for ever",
}
"""What each kind expects, for kinds whose reader raises a ValueError without a message."""

# --- the flags --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The flags that have an effect. Durations are seconds, ``retention_age`` nanoseconds, sizes bytes.

    ``without_effect`` maps given flags without an effect to the explanation.
    """

    # what is scheduled, and how
    scheduler_names: tuple[str, ...] = _flag(
        "scheduler-name", "texts", "volcano", "Schedule pods whose spec.schedulerName is this. May be repeated."
    )
    scheduler_conf: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "scheduler-conf", "path", "", "The scheduler's configuration file. Empty: vc-scheduler's compiled-in one."
    )
    scheduler_configmap: str = _flag(
        "scheduler-configmap",
        "text",
        "volcano-scheduler-configmap",
        "The ConfigMap, in the pod's namespace, from which --scheduler-conf is mounted. Events about the configuration "
        "are recorded at it.",
    )
    schedule_period: float = _flag(
        "schedule-period",
        "duration",
        "1s",
        "The longest time between two cycles. A change starts one at once.",
        above=0,
    )
    default_queue: str = _flag("default-queue", "text", "default", "The queue of PodGroups without a queue.")
    node_selector: tuple[str, ...] = _flag(
        "node-selector", "list", "", "Use only nodes with one of these labels, each as key:value. May be repeated."
    )
    placements: int = _flag(
        "placements", "int", "50000", "The most placements in one cycle. The next cycle continues.", low=1
    )
    kinds: int = _flag(
        "kinds-per-namespace",
        "int",
        "16",
        "The most kinds of pending pods of one namespace that one cycle tries. The next cycle tries the others. 0: no "
        "limit.",
        low=0,
    )
    admission_timeout: float = _flag(
        "admission-timeout",
        "duration",
        "5m",
        "How long an admitted PodGroup with fewer pods than minMember holds its reservation. 0: without end.",
        low=0,
    )
    unschedulable: str = _flag(
        "unschedulable",
        "text",
        "nodes",
        "Which pending pods get reason Unschedulable, for which autoscalers add nodes. nodes: pods that more nodes "
        "could help. all: every pending pod, as with vc-scheduler.",
        choices=("nodes", "all"),
    )
    plugin_timeout: float = _flag(
        "plugin-timeout",
        "duration",
        "5s",
        "The longest time of an out-of-tree plugin in one cycle; of an out-of-tree action ten times as long. After "
        "that, it is left out. 0: no limit.",
        low=0,
    )
    seed: int = _flag(
        "seed", "int", "0", "Orders nodes with equal scores. The same seed gives the same decisions.", low=0
    )
    shadow: bool = _flag(
        "shadow",
        "bool",
        "false",
        "Decide without acting, next to another scheduler: vcd writes only the event log and takes no Lease. "
        "`vcd shadow` compares the decisions.",
    )

    controllers: tuple[str, ...] = _flag(
        "controllers",
        "list",
        "",
        "Replace these of Volcano's controllers, for a cluster without them. podgroup: create PodGroups for pods "
        "without one. queue: write the state of Queues and the counts of their PodGroups.",
        choices=CONTROLLERS,
    )

    check_volcano_jobs: bool = _flag(
        "check-volcano-jobs",
        "bool",
        "false",
        "Report Volcano Jobs that no controller starts. The leader lists them every 20s, or more rarely if there are "
        "many; it needs the permission to list jobs.batch.volcano.sh.",
    )

    # the API server
    kubeconfig: str | None = _flag("kubeconfig", "text", "", "A kubeconfig file.")
    master: str | None = _flag("master", "text", "", "The API server's address; overrides the kubeconfig's.")
    kube_api_qps: float = _flag(
        "kube-api-qps", "float", "2000", "The most writes to the API server per second.", above=0
    )
    kube_api_burst: int = _flag("kube-api-burst", "int", "2000", "The most writes to the API server in a burst.", low=1)
    request_timeout: float = _flag("request-timeout", "duration", "4s", "The timeout of one request.", above=0)

    # leader election
    leader_elect: bool = _flag("leader-elect", "bool", "true", "Schedule only while holding the Lease.")
    lease_duration: float = _flag(
        "leader-elect-lease-duration",
        "duration",
        "15s",
        "The time without renewal after which another replica can take the Lease.",
        low=1,
    )
    renew_deadline: float = _flag(
        "leader-elect-renew-deadline",
        "duration",
        "10s",
        "The time after which a leader that cannot renew stops leading.",
        above=0,
    )
    retry_period: float = _flag(
        "leader-elect-retry-period", "duration", "2s", "The time between attempts to take or renew the Lease.", above=0
    )
    list_deadline: float = _flag(
        "leader-elect-list-deadline",
        "duration",
        "1m",
        "The time after which a leader gives the Lease back if its first list of a kind makes no progress. It stands "
        "for election again after one to two times as long, and doubles that each time.",
        above=0,
    )
    stale_deadline: float = _flag(
        "leader-elect-stale-deadline",
        "duration",
        "5m",
        "The time after which a leader gives the Lease back if it had listed a kind and can neither list nor watch it "
        "any more. It stands for election again as above. A silent watch is not a failed one.",
        above=0,
    )
    lead_beside_others: bool = _flag(
        "lead-beside-others",
        "bool",
        "false",
        "Continue in namespaces in which another scheduler binds vcd's pods. Otherwise, vcd stops deciding in a "
        "namespace at the third such bind within --others-quiet-period.",
    )
    others_quiet_period: float = _flag(
        "others-quiet-period",
        "duration",
        "5m",
        "The time without a bind by another scheduler after which vcd decides again in a namespace that it holds back.",
        above=0,
    )
    lease_name: str = _flag("leader-elect-resource-name", "text", "volcano", "The Lease's name.")
    resource_namespace: str = _flag(
        "leader-elect-resource-namespace", "text", "volcano-system", "The Lease's namespace."
    )
    lock_object_namespace: str = _flag(
        "lock-object-namespace", "text", "", "Deprecated name of --leader-elect-resource-namespace, which it overrides."
    )
    identity: str = _flag(
        "identity", "text", "", "This replica's name in the Lease. Empty: the host name and a random suffix."
    )

    # the event log
    event_log: Path = _flag(  # noqa: RUF009 - a path does not change
        "event-log", "path", "events.sqlite", "The event log's file. It is created if it is missing."
    )
    replicas_address: str = _flag(
        "replicas-address",
        "text",
        "",
        "The address at which other replicas follow this replica's log, as HOST:PORT. All replicas then have one log: "
        "followers copy the leader's log instead of watching the API server. Empty: each replica writes its own log.",
    )
    replicas_advertise: str = _flag(
        "replicas-advertise",
        "text",
        "",
        "The host at which other replicas reach --replicas-address. Empty: the variable POD_IP, or the host name.",
    )
    replicas_token_file: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "replicas-token-file",
        "path",
        "",
        "The token with which this replica follows others: a projected ServiceAccount token with audience vcd.",
    )
    replay_every: int = _flag(
        "replay-every",
        "int",
        "100",
        "Replay one of so many sessions in the background, and count replays with another plan. 0: none.",
        low=0,
    )
    checkpoint_interval: int = _flag(
        "checkpoint-interval",
        "int",
        "100000",
        "The most events between two checkpoints of the state. Readers fold the events since the last checkpoint, so "
        "one is also taken after half as many events as the state has objects, but at least 10,000.",
        low=1,
    )
    retention_age: int | None = _flag(
        "log-retention-age", "age", "7d", "Remove history older than this, up to a checkpoint. 0: never."
    )
    retention_size: int | None = _flag(
        "log-retention-size", "size", "10Gi", "Remove old history while the file is larger than this. 0: never."
    )
    volume_size: int | None = _flag(
        "event-log-volume-size",
        "size",
        "0",
        "The size of the volume of --event-log if its file system is larger: an emptyDir's sizeLimit, at which the "
        "kubelet evicts the pod. Metrics and alerts use it. 0: the size of the file system.",
    )
    archive: str = _flag(
        "archive",
        "text",
        "",
        "Where the leader ships the event log: an existing directory, or s3://BUCKET/PREFIX with the credentials and "
        "the endpoint that AWS tools would use. A replica without a log restores it from there.",
    )
    archive_every: float = _flag(
        "archive-every", "duration", "5m", "The time between shipments of new events to --archive.", above=0
    )
    archive_keep: tuple[str, ...] = _flag(
        "archive-keep",
        "list",
        "30d",
        "Remove history from --archive beyond an age such as 30d, a size such as 200Gi, or both. 0: never.",
    )
    housekeeping_period: float = 10.0
    """Seconds between checks of the log's size and of whether a checkpoint is due; no flag."""

    # observability
    enable_metrics: bool = _flag("enable-metrics", "bool", "true", "Serve /metrics on --listen-address.")
    listen_address: str = _flag("listen-address", "text", ":8080", "The address of /metrics, as HOST:PORT.")
    job_series: int = _flag(
        "job-series",
        "int",
        "5000",
        "Expose Volcano's series of single jobs while there are at most this many jobs. 0: never.",
        low=0,
    )
    enable_healthz: bool = _flag("enable-healthz", "bool", "true", "Serve health probes on --healthz-address.")
    healthz_address: str = _flag(
        "healthz-address", "text", ":11251", "The address of /healthz and /readyz, as HOST:PORT."
    )
    view_address: str = _flag(
        "view-address",
        "text",
        "127.0.0.1:8090",
        "The address of the page that displays the log, as HOST:PORT. Empty: no page. On other addresses than this "
        "machine's own, each request needs a token, and shows only what the token's user may see.",
    )
    page_audiences: tuple[str, ...] = _flag(
        "page-audience",
        "texts",
        "",
        "Accept only tokens for this audience at the page. Empty: the API server's own audience. May be repeated.",
    )
    page_hosts: tuple[str, ...] = _flag(
        "page-host",
        "texts",
        "",
        "Answer only requests for this host if other machines reach the page, such as the host of an Ingress. May be "
        "repeated. Empty: IP addresses, names of one label, and names of the cluster's services.",
    )
    page_url: str = _flag(
        "page-url",
        "text",
        "",
        "The URL at which users open the page, such as https://vcd.example.com. Alerts and dashboards link to it.",
    )
    tls_cert_file: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "tls-cert-file",
        "path",
        "",
        "The certificate with its chain (PEM), for the page if other machines reach it, and for /metrics with "
        "--metrics-secure. It is read again when it changes.",
    )
    tls_private_key_file: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "tls-private-key-file", "path", "", "The key to --tls-cert-file (PEM), without a passphrase."
    )
    metrics_secure: bool = _flag("metrics-secure", "bool", "false", "Serve /metrics with TLS.")
    metrics_require_token: bool = _flag(
        "metrics-require-token",
        "bool",
        "false",
        "Require a token at /metrics whose user may get the nonResourceURL /metrics.",
    )
    log_format: str = _flag(
        "log-format",
        "text",
        "auto",
        "auto, json or console. auto: console on a terminal, else json.",
        choices=("auto", "json", "console"),
    )
    verbosity: int = _flag(
        "v", "int", "0", "klog's verbosity. 4 and more adds details, a negative value leaves only warnings."
    )

    without_effect: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def lease_namespace(self) -> str:
        """Return the Lease's namespace."""
        return self.lock_object_namespace or self.resource_namespace

    @property
    def archive_age(self) -> int | None:
        """Return the age limit of the archive in ns; None for no limit."""
        return next((value for unit, value in map(_parse_limit, self.archive_keep) if unit == "age"), None)

    @property
    def archive_size(self) -> int | None:
        """Return the size limit of the archive in bytes; None for no limit."""
        return next((value for unit, value in map(_parse_limit, self.archive_keep) if unit == "size"), None)

    def settings(self) -> Settings:
        """Return the flags that influence decisions, for the log."""
        return Settings(
            self.scheduler_names,
            self.default_queue,
            self.placements,
            self.node_selector,
            shadow=self.shadow,
            controllers=self.controllers,
            admission_timeout=math.ceil(self.admission_timeout),
            kinds=self.kinds,
        )


_KLOG = "vcd writes structured lines to standard error; see --log-format"
_ALL_NODES = "vcd considers every node; predicates and scores of equivalent pods are computed for all nodes at once"
_WATCH = "the active plugins determine the watched kinds"
_PLAIN = "health is served without TLS"

WITHOUT_EFFECT: tuple[Flag, ...] = (
    Flag("ca-cert-file", "text", "", idle=_PLAIN),
    Flag("resync-period", "duration", "0", idle="vcd compares its objects with a list every half hour, at any value"),
    Flag(
        "priority-class",
        "bool",
        "true",
        idle="PriorityClasses are always read; the priority plugin uses them",
        refusal="vcd always reads PriorityClasses and would evict by them; leave the flag out, and remove preempt from "
        "the configuration's actions",
    ),
    Flag("minimum-feasible-nodes", "int", "100", idle=_ALL_NODES),
    Flag("minimum-percentage-nodes-to-find", "int", "5", idle=_ALL_NODES),
    Flag("percentage-nodes-to-find", "int", "0", idle=_ALL_NODES),
    Flag("plugins-dir", "text", "", idle="plugins come from Python entry points of the group vcd.plugins"),
    Flag("csi-storage", "bool", "true", idle=_WATCH),
    Flag("enable-pprof", "bool", "false", idle="there is no Go runtime to profile"),
    Flag("cache-dumper", "bool", "true", idle="the event log holds the state; see vcd log"),
    Flag("cache-dump-dir", "text", "", idle="the event log holds the state; see vcd log"),
    Flag("node-worker-threads", "int", "20", idle="one event loop follows all nodes"),
    Flag(
        "gate-removal-worker-num", "int", "5", idle="scheduling gates are removed like binds, with the same concurrency"
    ),
    Flag("ignored-provisioners", "list", "", idle="claims are counted by the drivers that CSINode objects name"),
    Flag("resource-sync-timeout", "duration", "60s", idle="vcd schedules nothing before every list is complete"),
    Flag(
        "disable-default-scheduler-config", "bool", "false", idle="a bad configuration is never replaced by a default"
    ),
    Flag(
        "scheduler-sharding-mode",
        "text",
        "none",
        idle="vcd uses all nodes and does not shard them",
        refusal="vcd does not read NodeShards and would place pods on nodes of other shards; leave the flag out, and "
        "select the nodes with --node-selector",
    ),
    Flag("scheduler-sharding-name", "text", "volcano", idle="vcd uses all nodes and does not shard them"),
    Flag("feature-gates", "list", "", idle="vcd has no feature gates"),
    Flag(
        "leader-elect-resource-lock",
        "text",
        "leases",
        idle="the lock is always a Lease",
        refusal="the lock is always a Lease, which a scheduler with another lock does not respect; write leases",
    ),
    Flag("logtostderr", "bool", "true", idle=_KLOG),
    Flag("alsologtostderr", "bool", "false", idle=_KLOG),
    Flag("stderrthreshold", "text", "2", idle=_KLOG),
    Flag("legacy-stderr-threshold-behavior", "bool", "true", idle=_KLOG),
    Flag("vmodule", "text", "", idle=_KLOG),
    Flag("log-backtrace-at", "text", "", idle=_KLOG),
    Flag("log-dir", "text", "", idle=_KLOG),
    Flag("log-file", "text", "", idle=_KLOG),
    Flag("log-file-max-size", "int", "1800", idle=_KLOG),
    Flag("log-flush-frequency", "duration", "5s", idle=_KLOG),
    Flag("add-dir-header", "bool", "false", idle=_KLOG),
    Flag("skip-headers", "bool", "false", idle=_KLOG),
    Flag("skip-log-headers", "bool", "false", idle=_KLOG),
    Flag("one-output", "bool", "false", idle=_KLOG),
)
"""vc-scheduler's flags without an effect in vcd, each with the explanation."""

_FIELDS: Mapping[str, Flag] = {
    field.name: field.metadata["flag"] for field in dataclasses.fields(Options) if "flag" in field.metadata
}
FLAGS: tuple[Flag, ...] = (*_FIELDS.values(), *WITHOUT_EFFECT)
"""Every flag that ``vcd run`` takes."""


def parse_options(given: Mapping[str, Sequence[str]], environ: Mapping[str, str] | None = None) -> Options:
    """Parse options from flags (name without dashes -> given texts in order), then the environment, then defaults.

    Lists are separated by commas in the environment. Raises OptionError, which names the flag or the variable.
    """
    environ = environ or {}
    unknown = [name for name in given if name not in {flag.name for flag in FLAGS}]
    if unknown:
        raise OptionError(f"--{unknown[0]} is not a flag{did_you_mean(unknown[0], [flag.name for flag in FLAGS])}")
    values: dict[str, Any] = {}
    for name, flag in _FIELDS.items():
        found = _given(flag, given, environ)
        if found is not None:
            values[name] = flag.read(*found)
    idle: dict[str, str] = {}
    for flag in WITHOUT_EFFECT:
        found = _given(flag, given, environ)
        if found is not None:
            flag.read(*found)
            idle[flag.name] = flag.idle
    options = Options(**values, without_effect=idle)
    _validate(options)
    return options


def _given(
    flag: Flag, given: Mapping[str, Sequence[str]], environ: Mapping[str, str]
) -> tuple[Sequence[str], str] | None:
    """Return the texts for a flag and their source, or None if it is not given."""
    texts = given.get(flag.name)
    if texts:
        return texts, flag.written
    text = environ.get(flag.variable)
    if text is None or (text == "" and flag.kind not in ("text", "path")):
        return None
    return (text.split(",") if flag.kind == "texts" else [text]), flag.variable


# --- validation -------------------------------------------------------------------------------------------------------


def _validate(options: Options) -> None:
    """Raise OptionError for values that exclude each other, or that the flag's kind cannot check."""
    _validate_names(options)
    _validate_security(options)
    _validate_archive(options)
    if options.leader_elect and not options.shadow:
        _validate_election(options)
    if options.shadow and options.controllers:
        raise OptionError("--controllers: a shadow writes no objects; omit the flag")
    if options.shadow and options.replicas_address:
        raise OptionError("--shadow: a shadow has a log of its own; leave --replicas-address out")
    if options.replicas_address and not options.leader_elect:
        raise OptionError("--replicas-address: needs --leader-elect; a single replica has no leader to follow")
    for name in ("listen_address", "healthz_address", "view_address", "replicas_address"):
        if name in ("listen_address", "healthz_address") or getattr(options, name):
            split_address(getattr(options, name), _FIELDS[name].written)


def _validate_security(options: Options) -> None:
    files = {name: getattr(options, name) for name in ("tls_cert_file", "tls_private_key_file")}
    given = [name for name, file in files.items() if file is not None]
    if len(given) == 1:
        (missing,) = files.keys() - set(given)
        raise OptionError(f"{_FIELDS[missing].written}: {_FIELDS[given[0]].written} is given, and needs this, too")
    if options.metrics_secure and not given:
        raise OptionError("--metrics-secure: needs --tls-cert-file and --tls-private-key-file")
    for host in options.page_hosts:
        if not is_host(host):
            raise OptionError(f"--page-host: {host!r} is not a host; write its name alone, as in vcd.example.com")
    if options.page_url and not _PAGE_URL.fullmatch(options.page_url):
        raise OptionError(
            f"--page-url: {options.page_url!r} is not the URL of a page; write https://HOST[:PORT][/PATH]"
        )
    if "" in options.page_audiences:
        raise OptionError("--page-audience: must name an audience, as in vcd")


def _validate_archive(options: Options) -> None:
    if options.archive and options.shadow:
        raise OptionError("--archive: a shadow's log is not shipped; leave it out")
    try:
        check_place(options.archive)
    except ArchiveError as error:
        raise OptionError(f"--archive: {error}") from None
    try:
        units = [unit for unit, _ in map(_parse_limit, options.archive_keep)]
    except ValueError:
        raise OptionError(
            f"--archive-keep: {','.join(options.archive_keep)!r} is neither an age such as 30d nor a size such as 200Gi"
        ) from None
    if len(set(units)) < len(units):
        raise OptionError("--archive-keep: give one age, one size, or one of each")


def _validate_names(options: Options) -> None:
    for name in options.scheduler_names:
        if not name.strip() or "," in name:
            raise OptionError(f"--scheduler-name: {name!r} is not a scheduler name; repeat the flag for several")
    if not options.default_queue:
        raise OptionError("--default-queue: must name a queue")
    if options.event_log is None:
        raise OptionError("--event-log: must name a file")
    for entry in options.node_selector:
        key, colon, value = entry.partition(":")
        if not colon or not value or not is_qualified_name(key.strip()):
            raise OptionError(f"--node-selector: {entry!r} is not a label; write it as key:value, as in zone:east")


def _validate_election(options: Options) -> None:
    """Check that the holder's last request ends before another replica may take the Lease (docs/laws.md, law 4)."""
    for name in ("lease_name", "lease_namespace"):
        if not getattr(options, name):
            raise OptionError(f"--leader-elect-resource-{name.removeprefix('lease_')}: must not be empty")
    if "$(" in options.lease_namespace:
        # Kubernetes does not replace a reference to a variable that the pod lacks
        raise OptionError(
            f"--leader-elect-resource-namespace: {options.lease_namespace!r} is not a namespace; give the container "
            "that environment variable, from the field metadata.namespace"
        )
    if not options.lease_duration.is_integer():
        raise OptionError("--leader-elect-lease-duration: must be whole seconds, because the Lease stores seconds")
    if options.renew_deadline <= options.retry_period:
        raise OptionError(
            f"--leader-elect-renew-deadline: {options.renew_deadline:g}s must be longer than "
            f"--leader-elect-retry-period ({options.retry_period:g}s)"
        )
    if options.renew_deadline + options.request_timeout >= options.lease_duration:
        raise OptionError(
            f"--leader-elect-lease-duration: {options.lease_duration:g}s must be longer than "
            f"--leader-elect-renew-deadline ({options.renew_deadline:g}s) plus --request-timeout "
            f"({options.request_timeout:g}s), or a request may be in flight when another replica takes the "
            f"Lease; make it more than {options.renew_deadline + options.request_timeout:g}s or shorten the others"
        )


def split_address(address: str, source: str) -> tuple[str, int]:
    """Split ``HOST:PORT``. An empty host means every address of the machine. Raises OptionError naming ``source``."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise OptionError(f"{source}: {address!r}: write an IPv6 address in brackets, as in [::1]:8080")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise OptionError(f"{source}: {address!r} is not HOST:PORT; write :8080 or 127.0.0.1:8080")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return ``HOST:PORT``, with an IPv6 host in brackets; the inverse of `split_address`."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def normalise_arguments(arguments: Iterable[str]) -> list[str]:
    """Convert a command line with Go's flag syntax to click's ``--flag=value``.

    Flags have one dash or two, and dashes or underscores between words. A bool needs no value. ``-v=3``, ``-v3`` and
    ``-v 3`` are the same. The word ``2>&1``, which Volcano's Helm chart passes without a shell, is dropped.
    """
    bools = {flag.name for flag in FLAGS if flag.kind == "bool"}
    result: list[str] = []
    for argument in arguments:
        match = re.fullmatch(r"--?([a-zA-Z][\w-]*)(=.*)?", argument, re.DOTALL)
        if argument == "2>&1":
            continue
        if short := re.fullmatch(r"-v=?(-?[0-9]+)", argument):
            result.append(f"--v={short[1]}")
        elif argument == "-v":
            result.append("--v")
        elif match is None or argument.startswith("-h"):
            result.append(argument)
        else:
            name = match[1].replace("_", "-")
            result.append(f"--{name}{match[2] or ('=true' if name in bools else '')}")
    return result
