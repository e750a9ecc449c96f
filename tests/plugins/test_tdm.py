"""tdm: zones, windows, and who goes when a window is over. Now is 8:00 UTC."""

from __future__ import annotations

import datetime
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.dsl import NOW, Manifest, gang, group, node, planned, pod, session_after, session_of
from tests.plugins.opened import conf, job_of, let_go, plugin_of, task_of, tasks_of
from tests.predicates.asking import passing, reasons
from tests.scores.rating import points, rated
from vcd.scheduling.framework.declared_reasons import all_told
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.points import Vote
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.plugins.tdm import TdmPlugin, budget, window_of
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.statement import Statement

ZONE = "volcano.sh/revocable-zone"
PREEMPTABLE = "volcano.sh/preemptable"
LEAST, MOST = "volcano.sh/jdb-min-available", "volcano.sh/jdb-max-unavailable"
OPEN, PREFERRED = "RevocableZoneOpen", "RevocableZone"
PERMITTED = "RevocableZonePermitted"
EXAMPLE = {"rz1": "0:00-0:00", "rz2": "0:00-0:01"}


def configured(zones: dict[str, str] | None = None, period: str | None = None, actions: str = "allocate") -> str:
    """The plugin with windows of zones; by default rz1 is open and rz2 is closed."""
    arguments: dict[str, Any] = {
        f"tdm.revocable-zone.{zone}": f'"{text}"' for zone, text in (EXAMPLE if zones is None else zones).items()
    }
    if period is not None:
        arguments["tdm.evict.period"] = period
    return conf("tdm", arguments=arguments, actions=actions)


def nodes() -> list[Manifest]:
    """Volcano's table: n1 and n2 in rz1, n3 and n4 in none, n5 in rz2."""
    zones = {"n1": "rz1", "n2": "rz1", "n5": "rz2"}
    return [node(name, labels={ZONE: zones[name]} if name in zones else {}) for name in ("n1", "n2", "n3", "n4", "n5")]


def asking(*objects: Manifest, zones: dict[str, str] | None = None, **options: Any) -> Session:
    return session_of(*nodes(), *objects, group("g"), pod("p", group="g", **options), conf=configured(zones))


def allowed(session: Session) -> set[str]:
    return passing(session, OPEN) & passing(session, PERMITTED)


# --- windows --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "length"),
    [
        ("00:00-01:00", 3600),
        ("0:00-23:59", 86_340),
        ("1:00-0:00", 82_800),
        ("   1:00-0:00    ", 82_800),
        ("23:59-23:59", 86_400),
        ("22:00-6:00", 28_800),
    ],
)
def test_a_window_is_as_long_as_it_says(text: str, length: int) -> None:
    window = window_of(text)
    assert window is not None
    seconds = sum(window.holds(second * 10**9) for second in range(86_400))
    assert seconds == min(length + 1, 86_400)  # its last second included


@pytest.mark.parametrize(
    "text", ["00:00_01:00", "0:00", "1:0-0:0", "63:59-23:59", "8:00-24:00", "8:60-9:00", "1:00-2:00-3:00", ""]
)
def test_what_is_no_window_is_an_error_of_the_configuration(text: str) -> None:
    assert window_of(text) is None
    with pytest.raises(PolicyError, match=r"tdm\.revocable-zone\.rz1.* must be a window such as 22:00-6:00"):
        session_of(node("n"), conf=configured({"rz1": text}))


@pytest.mark.parametrize("period", ["soon", "-1s", "5"])
def test_what_is_no_period_is_an_error_of_the_configuration(period: str) -> None:
    with pytest.raises(PolicyError, match=r"tdm\.evict\.period"):
        session_of(node("n"), conf=configured(period=f'"{period}"'))


@given(start=st.integers(0, 1439), end=st.integers(0, 1439), now=st.integers(0, 10**19))
def test_windows_are_the_specification(start: int, end: int, now: int) -> None:
    window = window_of(f"{start // 60}:{start % 60:02}-{end // 60:02}:{end % 60:02}")
    assert window is not None
    second = (now // 10**9) % 86_400
    last = end * 60 if end > start else end * 60 + 86_400
    expected = any(start * 60 <= second + days <= last for days in (0, 86_400))
    assert window.holds(now) is (True if start == end else expected)


@pytest.mark.parametrize(
    ("window", "open_"),
    [
        ("8:00-9:00", True),
        ("7:00-8:00", True),
        ("8:01-9:00", False),
        ("7:00-7:59", False),
        ("22:00-8:30", True),
        ("22:00-7:00", False),
    ],
)
def test_a_zone_is_open_in_its_window(window: str, open_: bool) -> None:
    session = asking(zones={"rz1": window}, annotations={ZONE: "*"})
    assert ("n1" in allowed(session)) is open_


# --- who may go there -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("annotations", "may"),
    [
        ({ZONE: "*"}, True),
        ({PREEMPTABLE: "true"}, True),
        ({PREEMPTABLE: "1"}, True),
        ({}, False),
        ({PREEMPTABLE: "false"}, False),
        ({PREEMPTABLE: "perhaps"}, False),
        ({ZONE: "rz1"}, False),
        ({ZONE: "rz1", PREEMPTABLE: "true"}, False),
        ({ZONE: "*", PREEMPTABLE: "false"}, True),
    ],
)
def test_pods_that_permit_it_are_placed_in_open_zones(annotations: dict[str, str], may: bool) -> None:
    assert allowed(asking(annotations=annotations)) == {"n3", "n4", *(["n1", "n2"] if may else [])}


def test_the_label_preemptable_permits_no_zone() -> None:
    assert allowed(asking(labels={PREEMPTABLE: "true"})) == {"n3", "n4"}


def test_a_zone_without_a_window_is_closed() -> None:
    assert allowed(asking(zones={"rz2": "0:00-0:00"}, annotations={ZONE: "*"})) == {"n3", "n4", "n5"}


def test_an_empty_zone_is_none() -> None:
    session = session_of(node("n", labels={ZONE: ""}), group("g"), pod("p", group="g"), conf=configured())
    assert framework_of(session).evaluator.predicates == framework_of(session).evaluator.scores == ()


def test_the_reasons_name_zone_and_window() -> None:
    session = asking(zones={"rz1": "9:00-10:00"}, annotations={ZONE: "*"})
    assert reasons(session, OPEN) == {
        "node(s) in revocable zone rz1 are closed now, open 9:00-10:00 UTC": 2,
        "node(s) in revocable zone rz2, for which the argument tdm.revocable-zone.rz2 is missing": 1,
    }


def test_pods_of_one_shape_are_told_apart_by_their_annotation() -> None:
    result = planned(
        node("n", labels={ZONE: "rz1"}),
        gang("plain", 1, cpu=1),
        gang("revocable", 1, cpu=1, annotations={ZONE: "*"}),
        conf=configured(),
    )
    assert list(result.binds) == ["default/revocable-0"]


def test_a_pod_that_may_not_be_there_does_not_speak_for_its_twin_that_may() -> None:
    """Both are of one role and shape, and differ in the annotation only: one that fails is no reason to pass the other
    over."""
    role = {"volcano.sh/task-spec": "worker"}
    first = pod("g-0", group="g", annotations=role, created=1, cpu=1)
    second = pod("g-1", group="g", annotations={**role, PREEMPTABLE: "true"}, created=2, cpu=1)
    plan = planned(node("n", labels={ZONE: "rz1"}), group("g"), first, second, conf=configured())
    assert plan.binds == {"default/g-1": "n"}


def test_no_eviction_helps_in_a_closed_zone() -> None:
    session = asking(annotations={ZONE: "*"})
    task = task_of(session, "p")
    resolvable = framework_of(session).candidates(task).resolvable()
    assert [name for name, may in zip(session.nodes.facts.names, resolvable, strict=True) if may] == [
        "n1",
        "n2",
        "n3",
        "n4",
    ]


def test_predicates_off_leave_all_nodes() -> None:
    text = configured() + "    enablePredicate: false\n"
    session = session_of(*nodes(), group("g"), pod("p", group="g"), conf=text)
    assert framework_of(session).evaluator.predicates == ()


def test_open_zones_are_preferred() -> None:
    session = asking(annotations={ZONE: "*"})
    assert points(session, PREFERRED) == {"n1": 100, "n2": 100, "n3": 0, "n4": 0, "n5": 0}


def test_pods_that_use_no_zones_are_not_rated() -> None:
    assert not rated(asking(), PREFERRED)


# --- jobs -----------------------------------------------------------------------------------------------------------


def marked(name: str, size: int, marks: dict[str, str], *, labelled: bool = False, **options: Any) -> list[Manifest]:
    """A gang whose group has annotations (or labels)."""
    manifests = list(gang(name, size, **options))
    manifests[0]["metadata"]["labels" if labelled else "annotations"] = marks
    return manifests


def test_jobs_that_are_not_preemptable_come_first() -> None:
    result = planned(
        node("n", cpu=1),
        marked("a", 1, {PREEMPTABLE: "true"}, cpu=1),
        gang("b", 1, created=9, cpu=1),
        conf=configured(),
    )
    assert list(result.binds) == ["default/b-0"]


@pytest.mark.parametrize(
    ("marks", "labelled", "preemptable"),
    [
        ({PREEMPTABLE: "true"}, False, True),
        ({PREEMPTABLE: "true"}, True, True),
        ({PREEMPTABLE: "false"}, False, False),
        ({PREEMPTABLE: "odd"}, False, False),
        ({}, False, False),
    ],
)
def test_a_job_starves_while_pods_are_pending_unless_it_is_preemptable(
    marks: dict[str, str], labelled: bool, preemptable: bool
) -> None:
    session = session_of(
        node("n"), marked("g", 3, marks, labelled=labelled, members=1, on=["n"], cpu=1), conf=configured()
    )
    plugin, job = plugin_of(session, TdmPlugin), job_of(session, "g")
    assert (plugin.job_starving(job), plugin.job_order(job)) == (not preemptable, preemptable)


def test_a_job_without_pending_pods_does_not_starve() -> None:
    session = session_of(node("n"), gang("g", 1, on=["n"], cpu=1), conf=configured())
    assert not plugin_of(session, TdmPlugin).job_starving(job_of(session, "g"))


@pytest.mark.parametrize(("placed", "vote"), [(1, Vote.REJECT), (2, Vote.PERMIT)])
def test_a_job_may_wait_when_its_minimum_has_room(placed: int, vote: Vote) -> None:
    session = session_of(node("n"), gang("g", 3, members=2, cpu=1), conf=configured())
    statement = Statement(session.trial, "test", job_of(session, "g"))
    for index in range(placed):
        statement.pipeline([task_of(session, f"g-{index}")], [0])
    assert plugin_of(session, TdmPlugin).job_pipelined(job_of(session, "g")) is vote


@pytest.mark.parametrize("first", ["tdm", "gang"])
def test_a_job_whose_roles_have_no_room_holds_none(first: str) -> None:
    roles = group("g", members=3, minTaskMember={"master": 1, "worker": 2})
    pods = [
        pod(f"{role}-{number}", group="g", cpu=1, annotations={"volcano.sh/task-spec": role})
        for role, count in (("master", 3), ("worker", 2))
        for number in range(count)
    ]
    second = {"tdm": "gang", "gang": "tdm"}[first]
    text = f'actions: "allocate"\ntiers:\n- plugins:\n  - name: {first}\n- plugins:\n  - name: {second}\n'
    places = planned(node("n", cpu=3), roles, pods, gang("other", 1, cpu=3, created=5), conf=text)
    assert (places.binds, places.pipelined) == ({"default/other-0": "n"}, {})


# --- preemption -----------------------------------------------------------------------------------------------------


def preempted(preemptor: dict[str, str], *objects: Manifest) -> list[str]:
    session = session_of(
        *nodes(), group("want"), pod("p", group="want", annotations=preemptor, cpu=1), *objects, conf=configured()
    )
    keys = sorted(key for key in session.snapshot.tasks.keys if key and not key.endswith("/p"))
    tasks = tasks_of(session, *(key.partition("/")[2] for key in keys))
    return let_go(plugin_of(session, TdmPlugin), "preemptable", task_of(session, "p"), tasks)


FIRM = {PREEMPTABLE: "false"}


def test_what_is_not_preemptable_preempts_what_is() -> None:
    assert preempted(FIRM, *gang("r", 1, on=["n3"], cpu=1)) == ["r-0"]


@pytest.mark.parametrize("preemptor", [{}, {PREEMPTABLE: "true"}, {PREEMPTABLE: "false", ZONE: "*"}])
def test_what_is_preemptable_or_uses_zones_preempts_nobody(preemptor: dict[str, str]) -> None:
    assert preempted(preemptor, *gang("r", 1, on=["n3"], cpu=1)) == []


@pytest.mark.parametrize(
    "options",
    [
        pytest.param({"annotations": FIRM}, id="not preemptable"),
        pytest.param({"on": ["n1"]}, id="on a revocable node"),
        pytest.param({"on": ["n5"]}, id="on a node of a closed zone"),
        pytest.param({"on": ["gone"]}, id="on a node that is gone"),
    ],
)
def test_others_are_no_victims(options: dict[str, Any]) -> None:
    assert preempted(FIRM, *gang("r", 1, **{"on": ["n3"], "cpu": 1, **options})) == []


def test_pods_that_do_not_run_yet_are_no_victims() -> None:
    assert preempted(FIRM, group("r"), pod("r-0", group="r", on="n3", phase="Pending", cpu=1)) == []


def test_of_each_job_one_goes_or_what_its_budget_lets() -> None:
    found = preempted(
        FIRM,
        *gang("a", 3, on=["n3"] * 3, cpu=1),
        *marked("b", 3, {MOST: "2"}, on=["n4"] * 3, cpu=1),
    )
    assert found == ["a-0", "b-0", "b-1"]


# --- budgets (the numbers of Volcano's own tests) -------------------------------------------------------------------


@pytest.mark.parametrize(
    ("marks", "running", "ended", "pending", "may_go"),
    [
        pytest.param({}, 5, 0, 0, 1, id="none stated"),
        pytest.param({MOST: "30%"}, 5, 0, 0, 2, id="30 % of 5, rounded up"),
        pytest.param({MOST: "99%"}, 5, 0, 0, 5, id="99 % of 5"),
        pytest.param({MOST: "50%"}, 5, 0, 0, 3, id="50 % of 5"),
        pytest.param({MOST: "3"}, 5, 0, 0, 3, id="three"),
        pytest.param({MOST: "3"}, 3, 0, 2, 1, id="those that do not run count"),
        pytest.param({MOST: "3"}, 3, 2, 0, 3, id="those that ended do not"),
        pytest.param({MOST: "1"}, 3, 0, 2, 0, id="more than allowed do not run"),
        pytest.param({LEAST: "3"}, 5, 0, 0, 2, id="three stay"),
        pytest.param({LEAST: "30%"}, 5, 0, 0, 3, id="30 % of 5, rounded up, stay"),
        pytest.param({LEAST: "4"}, 3, 0, 2, 0, id="fewer run than must stay"),
        pytest.param({LEAST: "3", MOST: "5"}, 5, 0, 0, 2, id="the minimum comes first"),
        pytest.param({LEAST: "most", MOST: "4"}, 5, 0, 0, 4, id="a minimum that cannot be read is passed over"),
        pytest.param({MOST: "-1"}, 5, 0, 0, 1, id="a negative number is passed over"),
        pytest.param({MOST: "x%"}, 5, 0, 0, 1, id="no percentage is passed over"),
        pytest.param({MOST: "0"}, 5, 0, 0, 0, id="nobody"),
    ],
)
def test_a_job_gives_what_its_budget_lets(
    marks: dict[str, str], running: int, ended: int, pending: int, may_go: int
) -> None:
    manifest = group("g")
    manifest["metadata"]["annotations"] = marks
    phases = ["Running"] * running + ["Succeeded"] * ended + ["Pending"] * pending
    pods = [
        pod(f"p{i}", group="g", on="" if phase == "Pending" else "n", phase=phase) for i, phase in enumerate(phases)
    ]
    session = session_of(node("n"), manifest, *pods, conf=configured())
    assert budget(job_of(session, "g")) == may_go


@pytest.mark.parametrize("key", [LEAST, MOST])
def test_a_waiting_job_tells_of_a_budget_that_cannot_be_read(key: str) -> None:
    session = session_after(node("n", cpu=1), marked("g", 1, {key: "half"}, cpu=2), conf=configured())
    told = [
        (waits.reason, waits.detail["value"]) for waits in all_told(job_of(session, "g").why) if waits.plugin == "tdm"
    ]
    assert told == [(f"annotation {key} of the group is no number or percentage, and is passed over", "half")]


def test_a_waiting_job_tells_of_a_zone_that_is_named() -> None:
    session = session_after(node("n", cpu=1), gang("g", 1, cpu=2, annotations={ZONE: "rz1"}), conf=configured())
    told = [(waits.reason, waits.pods) for waits in all_told(job_of(session, "g").why) if waits.plugin == "tdm"]
    words = "annotation volcano.sh/revocable-zone of the pod permits no zone; write * for all of them"
    assert told == [(words, ("default/g-0",))]


# --- when the window is over ----------------------------------------------------------------------------------------

SHUFFLE = configured(actions="shuffle")


def zoned(
    name: str, size: int, *, firm: int = 0, marks: dict[str, str] | None = None, on: str = "n5"
) -> list[Manifest]:
    """A running gang on a node, the last ``firm`` pods of which are not preemptable."""
    manifests = marked(name, size, marks or {}, on=[on] * size, cpu="100m")
    for manifest in manifests[size + 1 - firm :]:
        manifest["metadata"]["annotations"][PREEMPTABLE] = "false"
    return manifests


@pytest.mark.parametrize(
    ("objects", "evicted"),
    [
        pytest.param(zoned("g", 5, firm=2, marks={MOST: "30%"}), 2, id="30 % of 5"),
        pytest.param(zoned("g", 5, firm=2, marks={MOST: "99%"}), 3, id="all that are preemptable"),
        pytest.param(zoned("g", 5, marks={LEAST: "3"}), 2, id="three stay"),
        pytest.param(
            [*zoned("g", 5, firm=2, marks={MOST: "90%"}), *zoned("h", 5, marks={MOST: "50%"})], 6, id="two jobs"
        ),
        pytest.param(zoned("g", 5), 1, id="one where no budget is stated"),
        pytest.param(zoned("g", 5, on="n1"), 0, id="the zone is open"),
        pytest.param(zoned("g", 5, on="n3"), 0, id="an ordinary node"),
    ],
)
def test_preemptable_pods_leave_closed_zones(objects: list[Manifest], evicted: int) -> None:
    assert len(planned(*nodes(), *objects, conf=SHUFFLE).evictions) == evicted


def test_pods_in_a_zone_without_a_window_stay() -> None:
    result = planned(*nodes(), zoned("g", 2), conf=configured({"rz1": "0:00-0:00"}, actions="shuffle"))
    assert result.evictions == []


def test_the_budget_is_one_over_all_zones() -> None:
    both = configured({"rz1": "9:00-10:00", "rz2": "9:00-10:00"}, actions="shuffle")
    manifests = marked("g", 4, {MOST: "2"}, on=["n1", "n5", "n2", "n5"], cpu="100m")
    assert list(planned(*nodes(), manifests, conf=both).evictions) == ["default/g-0", "default/g-1"]


def under(*plugins: str) -> str:
    """The plugin after others, rz2 being closed."""
    return SHUFFLE.replace("  - name: tdm", "".join(f"  - name: {name}\n" for name in plugins) + "  - name: tdm")


def split(name: str, size: int, *, members: int | None = None, marks: dict[str, str] | None = None) -> list[Manifest]:
    """A running gang, its first pod on an ordinary node, the others in the closed zone."""
    return marked(name, size, marks or {}, members=members, on=["n3", *["n5"] * (size - 1)], cpu="100m")


@pytest.mark.parametrize("plugins", [("gang",), ("priority", "gang", "conformance", "pdb"), ("gang", "drf")])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("place", [zoned, split])
def test_a_strict_gang_leaves_a_closed_zone_as_a_whole(place: Any, size: int, plugins: tuple[str, ...]) -> None:
    """A gang all of whose pods are its minimum never left a closed zone: gang kept the one that was to go."""
    if (place, size) == (split, 1):
        return  # nothing of it is in the zone
    result = planned(*nodes(), place("g", size), *zoned("other", 1, on="n3"), conf=under(*plugins))
    assert sorted(result.evictions) == [f"default/g-{number}" for number in range(size)]


class Counted(list[Any]):
    """A list that counts how often somebody goes through it."""

    walks = 0

    def __iter__(self) -> Iterator[Any]:
        self.walks += 1
        return super().__iter__()


@pytest.mark.parametrize("gangs", [1, 12])
def test_however_many_strict_gangs_leave_the_tasks_are_gone_through_as_often(gangs: int) -> None:
    """Once for each gang were minutes where a window closes over 5,000 of them."""
    zone = node("n5", cpu=100, labels={ZONE: "rz2"})
    session = session_of(zone, *[zoned(f"g{i}", 2) for i in range(gangs)], conf=under("gang"))
    running = Counted(tasks_of(session, *[f"g{i}-{j}" for i in range(gangs) for j in range(2)]))
    assert len(plugin_of(session, TdmPlugin).victim_tasks(running)) == 3 * gangs
    assert running.walks == 2


@pytest.mark.parametrize("done", [1, 2])
def test_of_a_strict_gang_of_which_some_have_succeeded_the_others_leave(done: int) -> None:
    manifests = zoned("g", 4)
    for manifest in manifests[1 : 1 + done]:
        manifest["status"]["phase"] = "Succeeded"
    result = planned(*nodes(), manifests, conf=under("gang"))
    assert sorted(result.evictions) == [f"default/g-{number}" for number in range(done, 4)]


def test_what_a_gang_has_beyond_its_minimum_goes_first_and_one_by_one() -> None:
    manifests = marked("g", 4, {}, members=2, on=["n5"] * 4, cpu="100m")
    assert len(planned(*nodes(), manifests, conf=under("gang")).evictions) == 1


@pytest.mark.parametrize(
    "manifests",
    [
        pytest.param(zoned("g", 3, firm=1), id="one of its pods may not be evicted"),
        pytest.param(zoned("g", 3, marks={LEAST: "2"}), id="its budget keeps two"),
        pytest.param(zoned("g", 3, marks={MOST: "1"}), id="its budget lets one go at a time"),
    ],
)
def test_a_strict_gang_stays_whole_where_not_all_of_it_may_go(manifests: list[Manifest]) -> None:
    assert planned(*nodes(), manifests, conf=under("gang")).evictions == []


def test_a_budget_that_lets_all_go_lets_a_strict_gang_go() -> None:
    manifests = zoned("g", 3, marks={MOST: "100%"})
    assert len(planned(*nodes(), manifests, conf=under("gang")).evictions) == 3


def test_without_gang_one_pod_goes_at_a_time() -> None:
    assert len(planned(*nodes(), zoned("g", 3), conf=SHUFFLE).evictions) == 1


def stamped(manifest: Manifest, ago: float, field: str = "creationTimestamp") -> Manifest:
    moment = NOW - datetime.timedelta(seconds=ago)
    manifest["metadata"][field] = moment.isoformat().replace("+00:00", "Z")
    return manifest


def with_one_more(manifest: Manifest) -> Iterator[Manifest]:
    yield from zoned("g", 3)
    yield manifest


@pytest.mark.parametrize(
    ("period", "ago", "evicted"),
    [
        pytest.param(None, 59, 0, id="within a minute"),
        pytest.param(None, 60, 1, id="a minute later"),
        pytest.param("5m", 299, 0, id="within the period"),
        pytest.param("5m", 300, 1, id="after the period"),
        pytest.param("0s", 0, 1, id="no period"),
    ],
)
@pytest.mark.parametrize("kind", ["a pod was made", "a pod was asked to go"])
def test_a_job_that_gave_gives_no_more_within_the_period(kind: str, period: str | None, ago: int, evicted: int) -> None:
    if kind == "a pod was made":
        other = stamped(pod("new", group="g", cpu=1), ago)
    else:  # its deletion timestamp is when it was asked, plus the grace period of 30 s
        other = stamped(pod("old", group="g", on="n5", cpu=1), ago - 30, "deletionTimestamp")
    result = planned(*nodes(), with_one_more(other), conf=configured(period=period, actions="shuffle"))
    assert len(result.evictions) == evicted


def test_other_jobs_give_meanwhile() -> None:
    new = stamped(pod("new", group="g", cpu=1), 1)
    result = planned(*nodes(), with_one_more(new), zoned("h", 2), conf=SHUFFLE)
    assert list(result.evictions) == ["default/h-0"]


def test_victims_off_leaves_them() -> None:
    assert planned(*nodes(), zoned("g", 2), conf=SHUFFLE + "    enabledVictim: false\n").evictions == []


def test_time_alone_changes_what_it_says() -> None:
    assert TdmPlugin.timed
