"""Faults of the installation: when they begin and end, what of them is logged, displayed and announced."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from tests import dsl
from tests.daemon.cycle.test_session_loop import puts
from tests.kube.scripted import FakeClock
from vcd.daemon.faults.fault_monitor import FailingWrites, FaultMonitor, Sighting
from vcd.daemon.faults.missing_objects import (
    NO_PODS_AFTER,
    PATIENCE,
    GroupsWithoutPods,
    PodsWithoutGroup,
    jobs_without_nodes,
)
from vcd.daemon.metrics.metric_families import DAEMON
from vcd.daemon.metrics.metric_series import SeriesStore
from vcd.kube.api_errors import ApiError
from vcd.kube.request_info import CompletedRequest
from vcd.model import events as ev
from vcd.model.installation_faults import (
    FAULTS,
    KIND_NOT_LISTED,
    MOST_SUBJECTS,
    NO_GROUP,
    OTHERS,
    WRITE_REFUSED,
    WRITE_UNANSWERED,
)
from vcd.model.objects import Pod
from vcd.state.cluster_state import ClusterState
from vcd.state.records import Settings

FORBIDDEN = ApiError(403, "Forbidden", 'podgroups "g" is forbidden')
PATCH = ("patch", "podgroups")


class Watched:
    """An installation whose log is the state at once; `seen` has what the look at pods without a group finds."""

    def __init__(self) -> None:
        self.state, self.clock = ClusterState(), FakeClock()
        self.logged: list[ev.Event] = []
        self.announced: list[str] = []
        self.writes = True
        self.seen: dict[str, Sighting] = {}
        self.failing = FailingWrites(self.clock)
        self.restart()

    def restart(self) -> None:
        """Begin a new process with the same log."""
        self.series = SeriesStore(DAEMON)
        announce = lambda reason, message: self.announced.append(f"{reason}: {message}")  # noqa: E731
        looks = {
            NO_GROUP: lambda: self.seen,
            WRITE_REFUSED: self.failing.refused,
            WRITE_UNANSWERED: self.failing.unanswered,
        }
        self.faults = FaultMonitor(
            self.state, self._log, lambda: self.writes, self.series, announce, clock=self.clock, looks=looks
        )

    async def _log(self, events: Sequence[ev.Event]) -> None:
        self.logged += events
        for event in events:
            self.state.apply(self.state.sequence + 1, event)

    async def after(self, seconds: float) -> list[ev.Event]:
        """What a look logs so much later."""
        self.clock.advance(seconds)
        self.logged = []
        await self.faults.look()
        return self.logged

    def gauge(self) -> dict[tuple[str, ...], float]:
        """The displayed faults."""
        (page,) = (page for page in self.series.pages() if page.name == "vcd_installation_faults")
        return {tuple(sample.labels.values()): sample.value for sample in page.samples}

    def request(
        self, code: int, error: ApiError | None = None, about: tuple[str, str] = PATCH, namespace: str = "default"
    ) -> None:
        """A request ended so, a moment after the one before it."""
        self.clock.advance(0.01)
        self.failing.observe(CompletedRequest(*about, code, 0.1, error, namespace))


@pytest.fixture
def watched() -> Watched:
    return Watched()


async def test_a_fault_is_logged_when_it_begins_and_when_it_ends(watched: Watched) -> None:
    watched.seen = {"a": Sighting("pods name no group", 3)}
    assert await watched.after(1) == [ev.InstallationFault(NO_GROUP, "a", "pods name no group")]
    assert watched.gauge() == {(NO_GROUP, "a"): 3}
    watched.seen = {"a": Sighting("pods name no group", 7)}
    assert await watched.after(1) == []
    assert watched.gauge() == {(NO_GROUP, "a"): 7}
    watched.seen = {}
    assert await watched.after(1) == [ev.InstallationFault(NO_GROUP, "a")]
    assert (watched.gauge(), watched.state.faults) == ({}, {})


async def test_the_state_and_its_checkpoint_have_the_faults_that_last(watched: Watched) -> None:
    watched.seen = {"a": Sighting("x"), "b": Sighting("y")}
    await watched.after(1)
    watched.seen.pop("a")
    await watched.after(1)
    assert [fault.subject for fault in watched.state.faults.values()] == ["b"]
    assert ClusterState.load(watched.state.dump()).faults == watched.state.faults


async def test_another_message_is_logged_seldom(watched: Watched) -> None:
    for number in range(5):
        watched.seen = {"a": Sighting(f"pod {number}")}
        assert len(await watched.after(1)) == (number == 0)
    assert await watched.after(600) == [ev.InstallationFault(NO_GROUP, "a", "pod 4")]


async def test_tenants_do_not_make_it_grow(watched: Watched) -> None:
    watched.seen = {f"ns-{number:03}": Sighting("x", 2) for number in range(100, 100 + MOST_SUBJECTS)}
    await watched.after(1)
    watched.seen |= {f"ns-{number:03}": Sighting("x", 2) for number in range(50)}
    (added,) = await watched.after(1)
    assert isinstance(added, ev.InstallationFault)
    assert (added.code, added.subject) == (NO_GROUP, OTHERS)
    assert len(watched.gauge()) == MOST_SUBJECTS + 1
    assert watched.gauge()[NO_GROUP, OTHERS] == 100
    watched.seen.popitem()
    assert await watched.after(1) == []


async def test_a_replica_that_follows_a_log_writes_nothing_to_it(watched: Watched) -> None:
    watched.writes, watched.seen = False, {"a": Sighting("x")}
    assert await watched.after(1) == []
    assert watched.gauge() == {(NO_GROUP, "a"): 1}
    watched.writes = True
    assert len(await watched.after(1)) == 1


async def test_a_restart_neither_ends_nor_repeats_a_fault_that_lasts(watched: Watched) -> None:
    watched.seen = {"a": Sighting("x"), "b": Sighting("x")}
    await watched.after(1)
    watched.restart()
    watched.seen = {}
    assert await watched.after(PATIENCE) == []
    watched.seen = {"a": Sighting("x")}
    assert await watched.after(1) == []
    assert await watched.after(60) == [ev.InstallationFault(NO_GROUP, "b")]


async def test_what_a_component_reports_lasts_until_it_clears_it(watched: Watched) -> None:
    watched.faults.report(KIND_NOT_LISTED, "PodGroup", "403 Forbidden: no")
    assert watched.faults.not_ready() == (
        "a kind cannot be listed: PodGroup: 403 Forbidden: no; apply the CRDs, and the role in deploy/"
    )
    watched.faults.clear(KIND_NOT_LISTED, "PodGroup")
    assert watched.faults.not_ready() is None


async def test_what_has_no_object_of_its_own_is_announced_once_at_the_configuration(watched: Watched) -> None:
    watched.seen = {"a": Sighting("x")}
    watched.faults.report(KIND_NOT_LISTED, "Queue", "no")
    for _ in range(3):
        await watched.after(1)
    assert [line.partition(":")[0] for line in watched.announced] == ["KindNotListed"]


@pytest.mark.parametrize("code", FAULTS)
def test_each_code_says_what_is_wrong_and_what_to_do(code: str) -> None:
    assert all((FAULTS[code].what, FAULTS[code].subject, FAULTS[code].do))


# --- writes -----------------------------------------------------------------------------------------------------------


async def test_a_refused_write_is_a_fault_until_it_is_taken_for_a_minute(watched: Watched) -> None:
    watched.request(200)
    watched.request(403, FORBIDDEN)
    watched.request(403, FORBIDDEN)
    assert await watched.after(1) == [
        ev.InstallationFault(WRITE_REFUSED, "patch podgroups 403", '403 Forbidden: podgroups "g" is forbidden')
    ]
    assert watched.gauge() == {(WRITE_REFUSED, "patch podgroups 403"): 2}
    assert await watched.after(100) == []
    watched.request(403, FORBIDDEN)
    watched.clock.advance(1)
    watched.request(200)
    assert await watched.after(58) == []
    assert len(await watched.after(1)) == 1
    assert watched.gauge() == {}


@pytest.mark.parametrize("about", [("create", "pods/binding"), ("delete", "pods")])
async def test_a_refused_bind_or_eviction_is_one_too(watched: Watched, about: tuple[str, str]) -> None:
    watched.request(403, FORBIDDEN, about)
    await watched.after(1)
    assert watched.gauge() == {(WRITE_REFUSED, f"{' '.join(about)} 403"): 1}


async def test_a_write_that_succeeds_in_another_namespace_ends_no_refusal(watched: Watched) -> None:
    watched.request(403, FORBIDDEN, namespace="gated")
    watched.request(200, namespace="free")
    await watched.after(100)
    assert watched.gauge() == {(WRITE_REFUSED, "patch podgroups 403"): 1}
    watched.request(200, namespace="gated")
    await watched.after(1)
    assert watched.gauge() == {}


@pytest.mark.parametrize("code", [0, 504])
async def test_writes_that_get_no_answer_while_others_do_are_a_fault(watched: Watched, code: int) -> None:
    watched.request(200, about=("get", "leases"))
    for _ in range(3):
        assert await watched.after(1) == []
        watched.request(code, namespace="gated")
        watched.request(200, namespace="free")
    assert await watched.after(1) == [
        ev.InstallationFault(WRITE_UNANSWERED, "patch podgroups", "no answer in time, the last one in namespace gated")
    ]
    assert watched.gauge() == {(WRITE_UNANSWERED, "patch podgroups"): 3}
    watched.request(200, namespace="gated")
    assert len(await watched.after(1)) == 1
    assert watched.gauge() == {}


async def test_an_outage_is_no_fault_of_writes(watched: Watched) -> None:
    watched.request(200)
    for _ in range(9):
        watched.request(0)
    watched.request(200, about=("get", "leases"))
    watched.request(0)
    assert await watched.after(1) == []


async def test_a_refused_write_that_nothing_tries_again_is_forgotten(watched: Watched) -> None:
    watched.request(403, FORBIDDEN)
    await watched.after(1)
    assert len(await watched.after(600)) == 1


@pytest.mark.parametrize(
    ("about", "error"),
    [
        (("list", "podgroups"), FORBIDDEN),
        (PATCH, ApiError(404, "NotFound", 'podgroups "g" not found')),
        (PATCH, ApiError(409, "Conflict", "modified")),
    ],
)
async def test_what_is_reported_elsewhere_or_passes_is_none(
    watched: Watched, about: tuple[str, str], error: ApiError
) -> None:
    watched.request(error.status, error, about)
    assert await watched.after(1) == []


# --- pods without a group ---------------------------------------------------------------------------------------------


class Looked:
    """A look at pods without a group, in a state that a test changes."""

    def __init__(self, *there: object) -> None:
        self.state, self.clock, self.leads, self.not_listed = ClusterState(), FakeClock(), True, False
        self.told: list[tuple[str, str]] = []
        found = PodsWithoutGroup(self.state, lambda: self.leads, self._tell, lambda: self.not_listed, clock=self.clock)
        self.look = found.look
        self.happen(*puts(*there))

    def _tell(self, pod: Pod, why: str) -> None:
        self.told.append((pod.key, why))

    def happen(self, *events: ev.Event) -> None:
        for event in events:
            self.state.apply(self.state.sequence + 1, event)

    def after(self, seconds: float) -> dict[str, int]:
        """How many pods each namespace has without a group, so much later."""
        self.clock.advance(seconds)
        return {name: one.objects for name, one in self.look().items()}


def test_a_pod_without_a_group_is_told_once_after_a_while() -> None:
    it = Looked(dsl.pod("a"), dsl.pod("b", group="g"), dsl.pod("c", group="h"), dsl.group("h"))
    assert it.after(0) == {}
    assert it.after(PATIENCE) == {"default": 2}
    assert it.after(1) == {"default": 2}
    assert [key for key, _ in it.told] == ["default/a", "default/b"]
    assert "no annotation scheduling.k8s.io/group-name; look whether Volcano's controllers run" in it.told[0][1]
    assert "its PodGroup g does not exist in its namespace; create it" in it.told[1][1]
    it.happen(*puts(dsl.group("g")))
    assert it.after(1) == {"default": 1}


def test_without_podgroups_in_the_api_no_controller_and_no_user_is_blamed() -> None:
    it = Looked(dsl.pod("a"), dsl.pod("b", group="g"))
    it.not_listed = True
    it.after(0)
    assert it.after(PATIENCE) == {}
    assert it.after(1) == {}
    do = "look whether their CRD is applied, and at vcd's role"
    words = f"no session considers this pod: PodGroups cannot be listed; {do}"
    assert it.told == [("default/a", words), ("default/b", words)]
    it.not_listed = False
    assert it.after(1) == {}
    assert it.after(PATIENCE) == {"default": 2}
    assert "its PodGroup g does not exist" in it.told[3][1]


def test_others_pods_and_pods_with_a_node_lack_nothing() -> None:
    other = dsl.pod("a")
    other["spec"]["schedulerName"] = "default-scheduler"
    it = Looked(dsl.node("n"), other, dsl.pod("b", on="n"))
    it.after(0)
    assert it.after(PATIENCE) == {}


def test_a_new_leader_tells_the_pods_again() -> None:
    it = Looked(dsl.pod("a"))
    it.leads = False
    it.after(0)
    assert it.after(PATIENCE) == {"default": 1}
    assert it.told == []
    for leads in (True, False, True):
        it.leads = leads
        it.after(1)
    assert [key for key, _ in it.told] == ["default/a"] * 2


def test_many_pods_are_told_a_share_at_each_look() -> None:
    it = Looked(*(dsl.pod(f"p-{number}") for number in range(1200)))
    it.after(0)
    assert it.after(PATIENCE) == {"default": 1200}
    assert len(it.told) == 500
    it.after(1)
    it.after(1)
    assert len({key for key, _ in it.told}) == len(it.told) == 1200


def test_a_group_that_cannot_be_read_is_there() -> None:
    it = Looked(dsl.pod("b", group="g"))
    it.happen(ev.ObjectBad("PodGroup", "default/g", "1", "spec.minMember: expected int"))
    it.after(0)
    assert it.after(PATIENCE) == {}


# --- groups without pods, jobs without nodes --------------------------------------------------------------------------


def test_an_admitted_group_that_gets_no_pods_is_found_after_minutes() -> None:
    it = Looked(dsl.group("a", phase="Inqueue"), dsl.group("b", phase="Inqueue"), dsl.group("c", phase="Pending"))
    look = GroupsWithoutPods(it.state, clock=it.clock).look
    it.happen(*puts(dsl.pod("b-0", group="b")))
    look()
    it.clock.advance(NO_PODS_AFTER - 1)
    assert look() == {}
    it.clock.advance(1)
    assert look() == {"default": Sighting("no pod names these PodGroups", 1)}
    it.happen(*puts(dsl.pod("a-0", group="a")))
    assert look() == {}


@pytest.mark.parametrize(
    ("nodes", "selector", "expected"),
    [
        ([], (), {"cluster": Sighting("the API server lists no Node", 1)}),
        ([dsl.node("n")], (), {}),
        ([dsl.node("n")], ("pool:batch",), {"--node-selector": Sighting("no node has one of these labels", 1)}),
    ],
)
def test_jobs_that_wait_and_have_no_node(nodes: list[object], selector: tuple[str, ...], expected: object) -> None:
    it = Looked(*nodes, dsl.group("a"))
    it.state.settings = Settings(node_selector=selector)
    it.happen(ev.KindListed("Node", "1"))
    assert jobs_without_nodes(it.state) == {}
    it.state.waiting["default/a"] = (ev.Waiting("default/a", "predicate"),)
    assert jobs_without_nodes(it.state) == expected
