"""Flags: vc-scheduler's names and defaults, environment variables, and errors that say how to mend them."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from vcd.daemon.options import (
    FLAGS,
    WITHOUT_EFFECT,
    OptionError,
    Options,
    normalise_arguments,
    parse_options,
    split_address,
)
from vcd.state.records import Settings

# Volcano cmd/scheduler/app/options, component-base's leader election: what vc-scheduler takes, as of 2026.
VC_SCHEDULER = """\
master kubeconfig ca-cert-file tls-cert-file tls-private-key-file lock-object-namespace scheduler-name scheduler-conf
schedule-period resync-period default-queue listen-address healthz-address priority-class kube-api-qps kube-api-burst
minimum-feasible-nodes minimum-percentage-nodes-to-find percentage-nodes-to-find plugins-dir csi-storage enable-healthz
enable-metrics enable-pprof node-selector cache-dumper cache-dump-dir node-worker-threads gate-removal-worker-num
ignored-provisioners resource-sync-timeout disable-default-scheduler-config scheduler-sharding-mode
scheduler-sharding-name leader-elect leader-elect-lease-duration leader-elect-renew-deadline leader-elect-retry-period
leader-elect-resource-lock leader-elect-resource-name leader-elect-resource-namespace feature-gates logtostderr v
log-flush-frequency"""


def parsed(*arguments: str, **environ: str) -> Options:
    """Options of a command line with ``--flag=value`` words."""
    given: dict[str, list[str]] = {}
    for argument in arguments:
        name, _, text = argument.removeprefix("--").partition("=")
        given.setdefault(name, []).append(text)
    return parse_options(given, environ)


RESTRICTING = {
    "priority-class": ("true", ["false"]),
    "scheduler-sharding-mode": ("none", ["hard", "soft"]),
    "leader-elect-resource-lock": ("leases", ["endpoints", "configmaps"]),
}
"""Idle flags by which vc-scheduler does less: the value by which it does all, and values that are refused."""
NOT_RESTRICTING = {
    "more nodes are looked at": [
        "minimum-feasible-nodes=1", "minimum-percentage-nodes-to-find=1", "percentage-nodes-to-find=1",
    ],
    "obeyed in another way": [
        "csi-storage=true", "disable-default-scheduler-config=true", "plugins-dir=/p", "resource-sync-timeout=1s",
        "resync-period=1h",
    ],
    "lifts a restriction": ["ignored-provisioners=p"],
    "means nothing without another flag": ["scheduler-sharding-name=s"],
    "is about the process, not about pods": [
        "ca-cert-file=f", "enable-pprof=true", "cache-dumper=false", "cache-dump-dir=/d", "node-worker-threads=1",
        "gate-removal-worker-num=1", "feature-gates=A=true",
    ],
    "is about log lines": [
        "logtostderr=false", "alsologtostderr=true", "stderrthreshold=0", "legacy-stderr-threshold-behavior=false",
        "vmodule=a=1", "log-backtrace-at=a:1", "log-dir=/d", "log-file=f", "log-file-max-size=1",
        "log-flush-frequency=1s", "add-dir-header=true", "skip-headers=true", "skip-log-headers=true",
        "one-output=true",
    ],
}  # fmt: skip
"""All other idle flags, by why no value of theirs has to be refused."""


class TestIdleFlags:
    def test_each_is_judged_by_whether_it_restricts(self) -> None:
        harmless = [given.partition("=")[0] for some in NOT_RESTRICTING.values() for given in some]
        assert sorted([*RESTRICTING, *harmless]) == sorted(flag.name for flag in WITHOUT_EFFECT)
        assert {flag.name for flag in WITHOUT_EFFECT if flag.refusal} == set(RESTRICTING)

    @pytest.mark.parametrize("given", [each for some in NOT_RESTRICTING.values() for each in some])
    def test_one_that_does_not_is_taken_without_effect(self, given: str) -> None:
        assert list(parsed(f"--{given}").without_effect) == [given.partition("=")[0]]

    @pytest.mark.parametrize("name", RESTRICTING)
    def test_one_that_restricts_is_refused_with_what_to_do(self, name: str) -> None:
        allowed, refused = RESTRICTING[name]
        assert list(parsed(f"--{name}={allowed}").without_effect) == [name]
        for text in refused:
            with pytest.raises(OptionError, match=f"^--{name}: '{text}' is not supported: .*; (leave|write) "):
                parsed(f"--{name}={text}")
            variable = f"VCD_{name.upper().replace('-', '_')}"
            with pytest.raises(OptionError, match=f"^{variable}: '{text}' is not supported"):
                parsed(**{variable: text})


class TestDefaults:
    def test_are_vc_schedulers(self) -> None:
        options = Options()
        assert options.scheduler_names == ("volcano",)
        assert options.default_queue == "default"
        assert (options.listen_address, options.healthz_address) == (":8080", ":11251")
        assert (options.kube_api_qps, options.kube_api_burst) == (2000.0, 2000)
        assert (options.lease_duration, options.renew_deadline, options.retry_period) == (15.0, 10.0, 2.0)
        assert (options.lease_namespace, options.lease_name) == ("volcano-system", "volcano")
        assert options.leader_elect is True
        assert options.schedule_period == 1.0

    def test_hold_together(self) -> None:
        assert parse_options({}) == Options()

    def test_no_file_means_the_compiled_in_configuration(self) -> None:
        assert Options().scheduler_conf is None

    def test_are_read_from_the_texts_of_the_help(self) -> None:
        for flag in FLAGS:
            flag.read([flag.default])


class TestFlags:
    @pytest.mark.parametrize("name", VC_SCHEDULER.split())
    def test_all_of_vc_schedulers_are_taken(self, name: str) -> None:
        assert name in {flag.name for flag in FLAGS}

    def test_no_name_is_given_twice(self) -> None:
        names = [flag.name for flag in FLAGS]
        assert len(names) == len(set(names))

    def test_all_with_an_effect_are_documented(self) -> None:
        assert [flag.name for flag in FLAGS if not flag.idle and not flag.doc] == []

    def test_the_deployments_arguments_are_taken(self) -> None:
        text = Path("deploy/base/deployment.yaml").read_text()
        arguments = normalise_arguments(re.findall(r"^ +- (--?\w\S*)$", text, re.MULTILINE))
        assert len(arguments) > 8
        arguments = [argument.replace("$(POD_NAMESPACE)", "batch") for argument in arguments]
        assert parsed(*arguments).lease_namespace == "batch"
        assert parsed(*arguments).scheduler_conf == Path("/volcano.scheduler/volcano-scheduler.conf")

    @pytest.mark.parametrize(
        ("argument", "field", "expected"),
        [
            ("--schedule-period=500ms", "schedule_period", 0.5),
            ("--scheduler-conf=/c/v.conf", "scheduler_conf", Path("/c/v.conf")),
            ("--leader-elect=false", "leader_elect", False),
            ("--kube-api-qps=12.5", "kube_api_qps", 12.5),
            ("--log-retention-age=36h", "retention_age", 36 * 3600 * 10**9),
            ("--log-retention-age=14d", "retention_age", 14 * 24 * 3600 * 10**9),
            ("--log-retention-age=0", "retention_age", None),
            ("--log-retention-size=500Mi", "retention_size", 500 * 2**20),
            ("--log-retention-size=0", "retention_size", None),
            ("--event-log-volume-size=20Gi", "volume_size", 20 * 2**30),
            ("--checkpoint-interval=10", "checkpoint_interval", 10),
            ("--event-log=/var/e.sqlite", "event_log", Path("/var/e.sqlite")),
            ("--log-format=json", "log_format", "json"),
            ("--v=5", "verbosity", 5),
            ("--seed=9", "seed", 9),
            ("--controllers=podgroup,queue", "controllers", ("podgroup", "queue")),
        ],
    )
    def test_are_read(self, argument: str, field: str, expected: object) -> None:
        assert getattr(parsed(argument), field) == expected

    def test_the_last_one_counts(self) -> None:
        assert parsed("--default-queue=a", "--default-queue=b").default_queue == "b"

    def test_scheduler_names_add_up(self) -> None:
        assert parsed("--scheduler-name=a", "--scheduler-name=b").scheduler_names == ("a", "b")

    def test_lists_are_split_at_commas_too(self) -> None:
        options = parsed("--node-selector=zone:a,zone:b", "--node-selector=role:train")
        assert options.node_selector == ("zone:a", "zone:b", "role:train")

    def test_the_deprecated_namespace_overrides(self) -> None:
        options = parsed("--lock-object-namespace=old", "--leader-elect-resource-namespace=new")
        assert options.lease_namespace == "old"

    def test_settings_are_what_decides(self) -> None:
        options = parsed("--scheduler-name=a", "--default-queue=q", "--placements=7", "--node-selector=zone:a")
        assert options.settings() == Settings(("a",), "q", 7, ("zone:a",))

    def test_settings_come_back_from_the_log(self) -> None:
        names = parsed("--scheduler-name=a", "--scheduler-name=b", "--node-selector=zone:a,b:c").settings()
        acting = parsed("--controllers=podgroup,queue").settings()
        assert [Settings.from_text(each.as_text()) for each in (names, acting)] == [names, acting]


class TestWithoutEffect:
    def test_what_is_given_is_told_with_the_reason(self) -> None:
        told = parsed("--node-worker-threads=20", "--logtostderr=true").without_effect
        assert sorted(told) == ["logtostderr", "node-worker-threads"]
        assert all(told.values())

    def test_nothing_given_is_nothing_told(self) -> None:
        assert parsed().without_effect == {}

    def test_each_has_a_reason(self) -> None:
        assert [flag.name for flag in WITHOUT_EFFECT if not flag.idle] == []

    def test_they_are_read_all_the_same(self) -> None:
        with pytest.raises(OptionError, match=r"--node-worker-threads: 'many' is not an integer"):
            parsed("--node-worker-threads=many")


class TestEnvironment:
    def test_every_flag_has_a_variable(self) -> None:
        options = parsed(VCD_SCHEDULE_PERIOD="2s", VCD_LEADER_ELECT="false", VCD_V="4", VCD_CSI_STORAGE="true")
        assert (options.schedule_period, options.leader_elect, options.verbosity) == (2.0, False, 4)
        assert "csi-storage" in options.without_effect

    def test_a_flag_comes_first(self) -> None:
        assert parsed("--default-queue=flag", VCD_DEFAULT_QUEUE="variable").default_queue == "flag"

    def test_scheduler_names_are_separated_by_commas(self) -> None:
        assert parsed(VCD_SCHEDULER_NAME="a,b").scheduler_names == ("a", "b")

    def test_an_empty_number_is_as_if_it_were_not_there(self) -> None:
        assert parsed(VCD_SCHEDULE_PERIOD="").schedule_period == 1.0

    def test_an_error_names_the_variable(self) -> None:
        with pytest.raises(OptionError, match="VCD_SCHEDULE_PERIOD: 'soon' is not a duration such as 500ms"):
            parsed(VCD_SCHEDULE_PERIOD="soon")


class TestErrors:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (["--schedule-period=1"], "--schedule-period: '1' is not a duration"),
            (["--schedule-period=0s"], "--schedule-period: must be more than 0"),
            (["--leader-elect=maybe"], "--leader-elect: 'maybe' is not true or false"),
            (["--kube-api-qps=nan"], "--kube-api-qps: 'nan' is not a number"),
            (["--kube-api-burst=0"], "--kube-api-burst: must be at least 1"),
            (["--placements=-1"], "--placements: must be at least 1"),
            (["--seed=1.5"], "--seed: '1.5' is not an integer"),
            (["--controllers=queue,podgroups"], "--controllers: 'podgroups' is not one of .*did you mean podgroup"),
            (["--controllers=queue", "--shadow=true"], "--controllers: a shadow writes no objects; omit the flag"),
            (["--log-format=jsn"], "--log-format: 'jsn' is not one of .*did you mean json"),
            (["--log-retention-size=10 GB"], "--log-retention-size: "),
            (["--log-retention-age=-1h"], "--log-retention-age: '-1h' is not"),
            (["--scheduler-name="], "--scheduler-name: '' is not a scheduler name"),
            (["--scheduler-name=a,b"], "--scheduler-name: 'a,b' .*repeat the flag"),
            (["--default-queue="], "--default-queue: must name a queue"),
            (["--event-log="], "--event-log: must name a file"),
            (["--node-selector=zone"], "--node-selector: 'zone' .*write it as key:value"),
            (["--listen-address=8080"], "--listen-address: '8080' is not HOST:PORT"),
            (["--healthz-address=:99999"], "--healthz-address: ':99999' is not HOST:PORT"),
            (["--listen-address=::1:80"], r"--listen-address: .* in brackets"),
            (["--leader-elect-lease-duration=15500ms"], "--leader-elect-lease-duration: must be whole seconds"),
            (["--leader-elect-retry-period=10s"], "--leader-elect-renew-deadline: 10s must be longer than"),
            (["--leader-elect-resource-name="], "--leader-elect-resource-name: must not be empty"),
            (["--leader-elect-resource-namespace="], "--leader-elect-resource-namespace: must not be empty"),
            (["--leader-elect-resource-namespace=$(POD_NAMESPACE)"], "is not a namespace; give the container "),
            (["--schedul-period=1s"], "--schedul-period is not a flag; did you mean schedule-period?"),
            (["--tls-cert-file=a"], "^--tls-private-key-file: --tls-cert-file is given, and needs this, too$"),
            (["--tls-private-key-file=a"], "^--tls-cert-file: --tls-private-key-file is given, and needs this, too$"),
            (["--metrics-secure=true"], "^--metrics-secure: needs --tls-cert-file and --tls-private-key-file$"),
            (
                ["--page-host=https://vcd.example.com"],
                "^--page-host: 'https://vcd.example.com' is not a host; write its",
            ),
            (["--page-host=vcd.example.com:443"], "write its name alone, as in vcd.example.com"),
            (["--page-audience="], "--page-audience: must name an audience, as in vcd"),
        ],
    )
    def test_name_the_flag_and_the_remedy(self, arguments: list[str], message: str) -> None:
        with pytest.raises(OptionError, match=message):
            parsed(*arguments)

    def test_a_request_must_not_outlive_the_lease(self) -> None:
        with pytest.raises(OptionError) as raised:
            parsed("--request-timeout=5s")
        words = str(raised.value)
        assert all(flag in words for flag in ("lease-duration", "renew-deadline", "--request-timeout"))
        assert "make it more than 15s" in words

    def test_a_shadow_asks_for_no_lease_and_follows_nobody(self) -> None:
        assert parse_options({"shadow": ["true"], "leader-elect-lease-duration": ["1s"]}).settings().shadow
        with pytest.raises(OptionError, match="--shadow: a shadow has a log of its own"):
            parse_options({"shadow": ["true"], "replicas-address": [":8444"]})

    def test_without_election_the_lease_does_not_matter(self) -> None:
        assert parsed("--request-timeout=1m", "--leader-elect=false").request_timeout == 60.0


class TestAddresses:
    @pytest.mark.parametrize(
        ("address", "host", "port"),
        [
            (":8080", "", 8080),
            ("127.0.0.1:0", "127.0.0.1", 0),
            ("[::1]:80", "::1", 80),
            ("localhost:1", "localhost", 1),
        ],
    )
    def test_are_split(self, address: str, host: str, port: int) -> None:
        assert split_address(address, "--x") == (host, port)


class TestArgumentsAsGoTakesThem:
    @pytest.mark.parametrize(
        ("written", "read"),
        [
            (["--logtostderr"], ["--logtostderr=true"]),
            (["--leader-elect=false"], ["--leader-elect=false"]),
            (["-v=3"], ["--v=3"]),
            (["-v3"], ["--v=3"]),
            (["-v", "3"], ["--v", "3"]),
            (["--v=3"], ["--v=3"]),
            (["--log_dir=/x"], ["--log-dir=/x"]),
            (["-scheduler-conf=/x_y"], ["--scheduler-conf=/x_y"]),
            (["--enable-healthz", "2>&1"], ["--enable-healthz=true"]),
            (["--master", "http://x"], ["--master", "http://x"]),
            (["-h"], ["-h"]),
            (["--help"], ["--help"]),
        ],
    )
    def test_become_clicks(self, written: list[str], read: list[str]) -> None:
        assert normalise_arguments(written) == read


def test_options_cannot_be_changed() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        Options().seed = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("given", "age", "size"),
    [
        ((), 30 * 24 * 3600 * 10**9, None),
        (("36h",), 36 * 3600 * 10**9, None),
        (("200Gi",), None, 200 * 2**30),
        (("90d,1.5Ti",), 90 * 24 * 3600 * 10**9, 3 * 2**39),
        (("0",), None, None),
    ],
)
def test_what_an_archive_keeps_is_an_age_or_a_size_or_both(
    given: tuple[str, ...], age: int | None, size: int | None
) -> None:
    options = parse_options({"archive-keep": given} if given else {})
    assert (options.archive_age, options.archive_size) == (age, size)


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (
            {"archive-keep": ["a month"]},
            "--archive-keep: 'a month' is neither an age such as 30d nor a size such as 200Gi",
        ),
        ({"archive-keep": ["30d,40d"]}, "--archive-keep: give one age, one size, or one of each"),
        ({"archive": ["gs://logs"]}, "--archive: archive gs://logs: it is neither a directory nor s3://BUCKET/PREFIX"),
        ({"archive": ["s3://"]}, "--archive: archive s3://: write it as s3://BUCKET or s3://BUCKET/PREFIX"),
        ({"archive": ["/archive"], "shadow": ["true"]}, "--archive: a shadow's log is not shipped; leave it out"),
        ({"archive-every": ["0s"]}, "--archive-every: must be more than 0"),
    ],
)
def test_an_archive_that_cannot_be_is_refused(given: dict[str, list[str]], told: str) -> None:
    with pytest.raises(OptionError, match=re.escape(told)):
        parse_options(given)
