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
from vcd.model.words import did_you_mean
from vcd.scheduling.framework.arguments import MEANINGS, READERS, parse_duration
from vcd.serving.hosts import is_host
from vcd.state.records import Settings

Kind = Literal["text", "texts", "list", "bool", "int", "float", "duration", "age", "size", "path"]

ENVIRONMENT_PREFIX = "VCD_"
PODGROUP, QUEUE = CONTROLLERS = ("podgroup", "queue")
"""Values of ``--controllers``."""
SECOND = 1_000_000_000
_PAGE_URL = re.compile(r"https?://[A-Za-z0-9.:\[\]-]+(/[\w.~%/-]*)?")
_LONG_UNITS = {"d": 24 * 3600 * SECOND, "w": 7 * 24 * 3600 * SECOND}


class OptionError(ValueError):
    """A flag that cannot be taken as it is; the message names it and says what to change."""


@dataclass(frozen=True)
class Flag:
    """One flag: ``name`` without dashes, ``default`` as it is written, ``doc`` for the help text.

    ``kind`` says how it is read: ``text``; ``texts`` (repeatable); ``list`` (repeatable, and split at commas);
    ``bool``; ``int``; ``float``; ``duration`` (seconds, float); ``age`` (nanoseconds, None for 0); ``size`` (bytes,
    None for 0); ``path`` (None for an empty text). ``low`` is the least value of a number, ``above`` what it must
    exceed; ``choices`` are all values that a text may have. ``idle`` says why it has no effect here, empty if it has.
    ``refusal`` is for an idle flag by which vc-scheduler does less than by its default: why other values than the
    default are refused, and what to do instead.
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
        """The environment variable that stands for it."""
        return ENVIRONMENT_PREFIX + self.name.upper().replace("-", "_")

    @property
    def written(self) -> str:
        """As it is written on a command line."""
        return f"-{self.name}" if len(self.name) == 1 else f"--{self.name}"

    def read(self, texts: Sequence[str], source: str = "") -> Any:
        """The value of what was given, the last one where only one counts. Raises OptionError naming ``source``."""
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


def _kept(text: str) -> tuple[Literal["age", "size"], int | None]:
    """An age in nanoseconds, or a size in bytes; None for 0. Raises ValueError."""
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
"""Of the kinds whose reader tells no more than that a text is none of them."""

# --- the flags --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Options:
    """The flags that have an effect. Durations are seconds, ``retention_age`` nanoseconds, sizes bytes.

    ``without_effect`` are the flags that were given and have none here: name -> why.
    """

    # what is scheduled, and how
    scheduler_names: tuple[str, ...] = _flag(
        "scheduler-name", "texts", "volcano", "Schedule pods whose spec.schedulerName is this. May be repeated."
    )
    scheduler_conf: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "scheduler-conf", "path", "", "The scheduler's configuration file; vc-scheduler's compiled-in one unless given."
    )
    scheduler_configmap: str = _flag(
        "scheduler-configmap",
        "text",
        "volcano-scheduler-configmap",
        "The ConfigMap that --scheduler-conf is mounted from, in the pod's namespace: Events about the configuration "
        "are recorded at it.",
    )
    schedule_period: float = _flag(
        "schedule-period", "duration", "1s", "The longest time between two cycles; changes start one at once.", above=0
    )
    default_queue: str = _flag("default-queue", "text", "default", "The queue of groups that name none.")
    node_selector: tuple[str, ...] = _flag(
        "node-selector", "list", "", "Use nodes with one of these labels only, each as key:value. May be repeated."
    )
    placements: int = _flag(
        "placements", "int", "50000", "Placements in one cycle at most; the rest goes on in the next.", low=1
    )
    kinds: int = _flag(
        "kinds-per-namespace",
        "int",
        "32",
        "Kinds of pending pods of one namespace that one cycle tries at most; the others have their turn in the next; "
        "0: all.",
        low=0,
    )
    admission_timeout: float = _flag(
        "admission-timeout",
        "duration",
        "5m",
        "How long an admitted group with fewer pods than its minimum keeps its reservation; 0 for without end.",
        low=0,
    )
    unschedulable: str = _flag(
        "unschedulable",
        "text",
        "nodes",
        "Which waiting pods say reason Unschedulable, for which autoscalers add nodes: nodes, those that more nodes "
        "could help; all, every one, as vc-scheduler.",
        choices=("nodes", "all"),
    )
    plugin_timeout: float = _flag(
        "plugin-timeout",
        "duration",
        "5s",
        "The time that a plugin which does not come with vcd may take in one cycle, and an action ten times as long; "
        "then it is left out. 0: any time.",
        low=0,
    )
    seed: int = _flag("seed", "int", "0", "Orders equally good nodes; the same seed decides the same.", low=0)
    shadow: bool = _flag(
        "shadow",
        "bool",
        "false",
        "Decide beside the scheduler that is there and do nothing: nothing is written but the event log, and no Lease "
        "is asked for. `vcd shadow` compares.",
    )

    controllers: tuple[str, ...] = _flag(
        "controllers",
        "list",
        "",
        "Do what these of Volcano's controllers do, for a cluster in which they do not run: podgroup makes PodGroups "
        "for pods that bring none, queue keeps the state of Queues and the counts of their groups.",
        choices=CONTROLLERS,
    )

    # the API server
    kubeconfig: str | None = _flag("kubeconfig", "text", "", "A kubeconfig file.")
    master: str | None = _flag("master", "text", "", "The API server's address; overrides the kubeconfig's.")
    kube_api_qps: float = _flag("kube-api-qps", "float", "2000", "Writes to the API server in a second.", above=0)
    kube_api_burst: int = _flag("kube-api-burst", "int", "2000", "Writes to the API server at once.", low=1)
    request_timeout: float = _flag("request-timeout", "duration", "4s", "The time one request may take.", above=0)

    # leader election
    leader_elect: bool = _flag("leader-elect", "bool", "true", "Schedule only while holding the Lease.")
    lease_duration: float = _flag(
        "leader-elect-lease-duration", "duration", "15s", "How long after its last renewal a Lease is free.", low=1
    )
    renew_deadline: float = _flag(
        "leader-elect-renew-deadline", "duration", "10s", "When a leader that cannot renew stops leading.", above=0
    )
    retry_period: float = _flag(
        "leader-elect-retry-period", "duration", "2s", "The time between attempts to take or renew.", above=0
    )
    list_deadline: float = _flag(
        "leader-elect-list-deadline",
        "duration",
        "1m",
        "When a leader whose first list of a kind gets no further gives the Lease back; it stands again after one to "
        "two times as long, and twice that each time.",
        above=0,
    )
    stale_deadline: float = _flag(
        "leader-elect-stale-deadline",
        "duration",
        "5m",
        "When a leader that had listed a kind and since can neither list nor watch it gives the Lease back; it stands "
        "again as above. A watch that is silent is none that fails.",
        above=0,
    )
    lead_beside_others: bool = _flag(
        "lead-beside-others",
        "bool",
        "false",
        "Go on in namespaces in which somebody else binds pods of ours. Otherwise vcd holds a namespace back at the "
        "third such bind within the quiet period.",
    )
    others_quiet_period: float = _flag(
        "others-quiet-period",
        "duration",
        "5m",
        "How long nobody else may have bound a pod of ours in a namespace that is held back before vcd decides there "
        "again.",
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
        "identity", "text", "", "This replica's name in the Lease; host name and a random suffix unless given."
    )

    # the event log
    event_log: Path = _flag(  # noqa: RUF009 - a path does not change
        "event-log", "path", "events.sqlite", "The event log's file; made when it is missing."
    )
    replicas_address: str = _flag(
        "replicas-address",
        "text",
        "",
        "Where this replica's log is followed by others, as HOST:PORT. Replicas then have one log: who does not lead "
        "follows the leader's instead of the API server. Empty: each replica logs by itself what it sees.",
    )
    replicas_advertise: str = _flag(
        "replicas-advertise",
        "text",
        "",
        "The host by which other replicas reach --replicas-address; the variable POD_IP, or this host's name, unless "
        "given.",
    )
    replicas_token_file: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "replicas-token-file",
        "path",
        "",
        "The token by which this replica follows others: a projected ServiceAccount token with audience vcd.",
    )
    replay_every: int = _flag(
        "replay-every",
        "int",
        "100",
        "Decide every so many sessions once more, in the background, and count where another plan comes out; 0: none.",
        low=0,
    )
    checkpoint_interval: int = _flag(
        "checkpoint-interval",
        "int",
        "100000",
        "Events between two checkpoints of the state, at most; a state is kept after half as many as it has objects, "
        "and at least 10,000, so that no question has to fold many.",
        low=1,
    )
    retention_age: int | None = _flag(
        "log-retention-age", "age", "7d", "Remove history older than this, up to a checkpoint; 0: keep it."
    )
    retention_size: int | None = _flag(
        "log-retention-size", "size", "10Gi", "Remove old history while the file is larger than this; 0: keep it."
    )
    volume_size: int | None = _flag(
        "event-log-volume-size",
        "size",
        "0",
        "What the volume of --event-log holds, where its file system has more: an emptyDir's sizeLimit, at which the "
        "kubelet evicts the pod. It is shown, and alerts go by it; 0: as the file system says.",
    )
    archive: str = _flag(
        "archive",
        "text",
        "",
        "Where whoever leads ships the event log: a directory that exists, or s3://BUCKET/PREFIX, with credentials and "
        "endpoint as AWS tools find them. A replica without a log begins with what is there.",
    )
    archive_every: float = _flag(
        "archive-every", "duration", "5m", "How often new events are shipped to --archive.", above=0
    )
    archive_keep: tuple[str, ...] = _flag(
        "archive-keep",
        "list",
        "30d",
        "Remove from --archive what is older than an age such as 30d, or beyond a size such as 200Gi, or both; 0: "
        "nothing.",
    )
    housekeeping_period: float = 10.0
    """Seconds between looks at the log's size and at whether a checkpoint is due; no flag."""

    # seeing it
    enable_metrics: bool = _flag("enable-metrics", "bool", "true", "Serve /metrics on --listen-address.")
    listen_address: str = _flag("listen-address", "text", ":8080", "Where /metrics is served, as HOST:PORT.")
    job_series: int = _flag(
        "job-series",
        "int",
        "5000",
        "Show Volcano's series of single jobs while there are no more jobs than this; 0: never.",
        low=0,
    )
    enable_healthz: bool = _flag("enable-healthz", "bool", "true", "Serve health on --healthz-address.")
    healthz_address: str = _flag(
        "healthz-address", "text", ":11251", "Where /healthz and /readyz are served, as HOST:PORT."
    )
    view_address: str = _flag(
        "view-address",
        "text",
        "127.0.0.1:8090",
        "Where the log is shown as a page, as HOST:PORT; empty for nowhere. On other addresses than this machine's own "
        "each question needs a token, and is answered as far as whose it is may see what is asked about.",
    )
    page_audiences: tuple[str, ...] = _flag(
        "page-audience",
        "texts",
        "",
        "Take tokens at the page that were made for this audience only; the API server's own unless given. May be "
        "repeated.",
    )
    page_hosts: tuple[str, ...] = _flag(
        "page-host",
        "texts",
        "",
        "Where others reach the page, answer requests for this host only, such as an Ingress names. May be repeated. "
        "Unless given: for IP addresses, names of one label, and those of the cluster's services.",
    )
    page_url: str = _flag(
        "page-url",
        "text",
        "",
        "Where people open the page, such as https://vcd.example.com: alerts and dashboards link there.",
    )
    tls_cert_file: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "tls-cert-file",
        "path",
        "",
        "The certificate, with its chain, by which the page is served where others reach it, and /metrics with "
        "--metrics-secure; PEM. It is read again when it changes.",
    )
    tls_private_key_file: Path | None = _flag(  # noqa: RUF009 - a path does not change
        "tls-private-key-file", "path", "", "The key to --tls-cert-file, without a passphrase; PEM."
    )
    metrics_secure: bool = _flag("metrics-secure", "bool", "false", "Serve /metrics by TLS.")
    metrics_require_token: bool = _flag(
        "metrics-require-token",
        "bool",
        "false",
        "Answer /metrics only to who shows a token and may get the nonResourceURL /metrics.",
    )
    log_format: str = _flag(
        "log-format",
        "text",
        "auto",
        "auto, json or console; auto is console on a terminal, else json.",
        choices=("auto", "json", "console"),
    )
    verbosity: int = _flag("v", "int", "0", "klog's verbosity: 4 and more adds details, negative leaves warnings only.")

    without_effect: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def lease_namespace(self) -> str:
        """Where the Lease is."""
        return self.lock_object_namespace or self.resource_namespace

    @property
    def archive_age(self) -> int | None:
        """Return the age limit of the archive in ns; None for no limit."""
        return next((value for unit, value in map(_kept, self.archive_keep) if unit == "age"), None)

    @property
    def archive_size(self) -> int | None:
        """Return the size limit of the archive in bytes; None for no limit."""
        return next((value for unit, value in map(_kept, self.archive_keep) if unit == "size"), None)

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
_ALL_NODES = "every node is looked at, since a shape's predicates and scores are computed for all nodes at once"
_WATCH = "what is watched follows from the plugins that are on"
_PLAIN = "health is served without TLS"

WITHOUT_EFFECT: tuple[Flag, ...] = (
    Flag("ca-cert-file", "text", "", idle=_PLAIN),
    Flag(
        "resync-period", "duration", "0", idle="each half hour what is known is compared with a list, whatever is given"
    ),
    Flag(
        "priority-class",
        "bool",
        "true",
        idle="PriorityClasses are always read; the priority plugin uses them",
        refusal="vcd always reads PriorityClasses and would evict by them; leave the flag out, and take preempt out of "
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
    Flag("gate-removal-worker-num", "int", "5", idle="gates are lifted beside binds, as many at a time as these"),
    Flag("ignored-provisioners", "list", "", idle="claims are counted by the drivers that CSINode objects name"),
    Flag("resource-sync-timeout", "duration", "60s", idle="nothing is scheduled before every list is in"),
    Flag(
        "disable-default-scheduler-config", "bool", "false", idle="a bad configuration is never replaced by a default"
    ),
    Flag(
        "scheduler-sharding-mode",
        "text",
        "none",
        idle="nodes are not sharded; all are used",
        refusal="vcd does not read NodeShards and would place pods on nodes of other shards; leave the flag out, and "
        "name the nodes by --node-selector",
    ),
    Flag("scheduler-sharding-name", "text", "volcano", idle="a name alone shards nothing; other modes are refused"),
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
"""vc-scheduler's flags that have no effect here, each with the reason."""

_FIELDS: Mapping[str, Flag] = {
    field.name: field.metadata["flag"] for field in dataclasses.fields(Options) if "flag" in field.metadata
}
FLAGS: tuple[Flag, ...] = (*_FIELDS.values(), *WITHOUT_EFFECT)
"""Every flag that ``vcd run`` takes."""


def parse_options(given: Mapping[str, Sequence[str]], environ: Mapping[str, str] | None = None) -> Options:
    """Options from flags (name without dashes -> the texts given, in order), then the environment, then defaults.

    Lists are separated by commas in the environment. Raises OptionError, which names the flag or the variable.
    """
    environ = environ or {}
    unknown = [name for name in given if name not in {flag.name for flag in FLAGS}]
    if unknown:
        raise OptionError(f"--{unknown[0]} is no flag{did_you_mean(unknown[0], [flag.name for flag in FLAGS])}")
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
    """The texts for a flag and where they come from, None where it is not given."""
    texts = given.get(flag.name)
    if texts:
        return texts, flag.written
    text = environ.get(flag.variable)
    if text is None or (text == "" and flag.kind not in ("text", "path")):
        return None
    return (text.split(",") if flag.kind == "texts" else [text]), flag.variable


# --- what must hold between them --------------------------------------------------------------------------------------


def _validate(options: Options) -> None:
    """Raises OptionError for values that cannot go together, or that no reader could judge alone."""
    _validate_names(options)
    _validate_security(options)
    _validate_archive(options)
    if options.leader_elect and not options.shadow:
        _validate_election(options)
    if options.shadow and options.controllers:
        raise OptionError("--controllers: a shadow writes nothing; leave it out")
    if options.shadow and options.replicas_address:
        raise OptionError("--shadow: a shadow has a log of its own; leave --replicas-address out")
    if options.replicas_address and not options.leader_elect:
        raise OptionError("--replicas-address: needs --leader-elect; a single replica has nobody to follow")
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
            raise OptionError(f"--page-host: {host!r} is no host; write its name alone, as in vcd.example.com")
    if options.page_url and not _PAGE_URL.fullmatch(options.page_url):
        raise OptionError(f"--page-url: {options.page_url!r} is no address of a page; write https://HOST[:PORT][/PATH]")
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
        units = [unit for unit, _ in map(_kept, options.archive_keep)]
    except ValueError:
        raise OptionError(
            f"--archive-keep: {','.join(options.archive_keep)!r} is no age such as 30d, and no size such as 200Gi"
        ) from None
    if len(set(units)) < len(units):
        raise OptionError("--archive-keep: give one age, one size, or one of each")


def _validate_names(options: Options) -> None:
    for name in options.scheduler_names:
        if not name.strip() or "," in name:
            raise OptionError(f"--scheduler-name: {name!r} is no scheduler name; repeat the flag for several")
    if not options.default_queue:
        raise OptionError("--default-queue: must name a queue")
    if options.event_log is None:
        raise OptionError("--event-log: must name a file")
    for entry in options.node_selector:
        key, colon, value = entry.partition(":")
        if not colon or not value or not is_qualified_name(key.strip()):
            raise OptionError(f"--node-selector: {entry!r} is no label; write it as key:value, as in zone:east")


def _validate_election(options: Options) -> None:
    """The holder stops, and its last request ends, before another replica may take the lease (docs/laws.md, law 4)."""
    for name in ("lease_name", "lease_namespace"):
        if not getattr(options, name):
            raise OptionError(f"--leader-elect-resource-{name.removeprefix('lease_')}: must not be empty")
    if "$(" in options.lease_namespace:
        # Kubernetes leaves a reference as it is where the pod has no such variable.
        raise OptionError(
            f"--leader-elect-resource-namespace: {options.lease_namespace!r} is no namespace; give the container that "
            "environment variable, from the field metadata.namespace"
        )
    if not options.lease_duration.is_integer():
        raise OptionError("--leader-elect-lease-duration: must be whole seconds, as the Lease holds it")
    if options.renew_deadline <= options.retry_period:
        raise OptionError(
            f"--leader-elect-renew-deadline: {options.renew_deadline:g}s must be longer than "
            f"--leader-elect-retry-period ({options.retry_period:g}s)"
        )
    if options.renew_deadline + options.request_timeout >= options.lease_duration:
        raise OptionError(
            f"--leader-elect-lease-duration: {options.lease_duration:g}s must be longer than "
            f"--leader-elect-renew-deadline ({options.renew_deadline:g}s) plus --request-timeout "
            f"({options.request_timeout:g}s), or a request may still be under way when another replica takes the "
            f"Lease; make it more than {options.renew_deadline + options.request_timeout:g}s or shorten the others"
        )


def split_address(address: str, source: str) -> tuple[str, int]:
    """Host (empty: every address of the machine) and port of ``HOST:PORT``. Raises OptionError naming ``source``."""
    host, colon, port = address.rpartition(":")
    if host.startswith("[") and host.endswith("]"):
        host = host[1:-1]
    elif ":" in host:
        raise OptionError(f"{source}: {address!r}: write an IPv6 address in brackets, as in [::1]:8080")
    if not colon or not re.fullmatch(r"[0-9]{1,5}", port) or int(port) > 65535:
        raise OptionError(f"{source}: {address!r} is not HOST:PORT; write :8080 or 127.0.0.1:8080")
    return host, int(port)


def join_address(host: str, port: int) -> str:
    """Return the address that `split_address` takes apart; an IPv6 host is put in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"


def normalise_arguments(arguments: Iterable[str]) -> list[str]:
    """A command line as Go's flags are written, in the way that click reads: ``--flag=value``, one dash or two.

    Words may be joined by underscores; a bool needs no value; ``-v=3``, ``-v3`` and ``-v 3`` are the same. The word
    ``2>&1``, which Volcano's Helm chart passes without a shell, is left out.
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
