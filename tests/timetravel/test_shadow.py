"""What a shadow's log tells of vcd and of the scheduler that was there, case by case."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests import dsl
from tests.eventlog.samples import SECOND
from tests.timetravel.histories import CONF, scheduler, write_busy_history
from tests.timetravel.shadowed import begin, bind, job, shadow, write_shadow_history
from tests.timetravel.test_eviction_explanation import CONF as EVICTING
from tests.timetravel.test_eviction_explanation import reclaimed
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.timetravel.history import opened
from vcd.timetravel.log_operations import verify
from vcd.timetravel.log_warnings import remarks
from vcd.timetravel.replay import replay
from vcd.timetravel.shadow.shadow_comparison import NoShadow, ShadowDifference, compare_shadow

HIGH, LOW = {"group_spec": {"priorityClassName": "high"}}, {"group_spec": {"priorityClassName": "low"}}


def by_pod(path: Path) -> dict[str, ShadowDifference]:
    """What is told of each pod, by the name of its job."""
    found = {one.pod.removeprefix("default/").removesuffix("-0"): one for one in compare_shadow(path).differences}
    assert len(found) == len(compare_shadow(path).differences)
    return found


async def test_each_pod_is_of_the_kind_that_it_is(tmp_path: Path) -> None:
    path = tmp_path / "log"
    await write_shadow_history(path)
    kinds = {name: one.kind for name, one in by_pod(path).items()}
    assert kinds == {
        "same": "same-node",
        "other": "other-node",
        "kept": "kept-back",
        "left": "only-vcd",
        "late": "undecided",
    }
    assert compare_shadow(path).waiting == 1


async def test_seconds_go_from_the_first_session_that_gave_it_a_node_to_its_bind(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a"))
        first = await made.cycle(seconds=7)
        await made.cycle(seconds=5)
        await bind(made, "a", "n0")
        bound = made.clock.now
    told = by_pod(path)["a"]
    assert (told.session, told.seconds, told.timed) == (first.session, (bound - first.now) / 1e9, True)
    (queue,) = compare_shadow(path).queues
    assert (queue.queue, queue.timed, queue.p50, queue.most) == ("default", 1, 12, 12)


async def test_who_is_kept_back_is_told_why_as_of_the_last_session_before(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a", queue="small", cpu=3))
        waits = await made.cycle()
        await bind(made, "a", "n0")
        await made.cycle()
    told = by_pod(path)["a"]
    assert (told.kind, told.session, told.node, told.seconds) == ("kept-back", waits.session, "", None)
    assert told.cause == "queue-deserved"
    assert told.why.startswith("queue has no room")


async def test_of_what_no_session_saw_nothing_is_said(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("early"))
        await made.cycle()
        await made.show(job("a"))
        await bind(made, "a", "n0")
        await made.cycle()
    told = by_pod(path)["a"]
    assert (told.kind, told.session, told.why) == ("undecided", 0, "")


async def test_a_decision_that_did_not_hold_any_more_is_none(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a"))
        shown = made.last_shown("Pod", "default/a-0")
        bound = made.shown({**shown, "spec": {**shown["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}})
        record = await made.cycle(bound)
        assert record.stale
    assert by_pod(path)["a"].kind == "undecided"


async def test_who_was_given_a_node_and_then_none_is_withdrawn(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a", cpu=4), job("b", cpu=4, created=1))
        await made.cycle()
        await made.show(job("first", cpu=4, created=2, **HIGH))
        later = await made.cycle()
    told = by_pod(path)
    assert {name: one.withdrawn for name, one in told.items() if one.withdrawn} == {"b": later.session}
    assert compare_shadow(path).withdrawn == 1


async def test_a_session_that_knew_nothing_of_its_bind_withdraws_it_too(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a", cpu=4), job("b", cpu=4, created=1))
        await made.cycle()
        await made.show(job("first", cpu=4, created=2, **HIGH))
        shown = made.last_shown("Pod", "default/b-0")
        bound = {**shown, "spec": {**shown["spec"], "nodeName": "n1"}, "status": {"phase": "Running"}}
        later = await made.cycle(made.shown(bound))  # logged after the bind, decided before
    told = by_pod(path)["b"]
    assert (told.bound_to, told.withdrawn) == ("n1", later.session)


async def test_what_was_there_when_it_began_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with scheduler(path, leading=False) as made:
        await made.load(CONF, shadow="true")
        await made.show(dsl.node("n0", cpu=4), dsl.queue("default"))
        await begin(made, job("a"))
        await made.show(job("b"))
        await made.cycle()
        for name in "ab":
            await bind(made, name, "n0")
    assert {name: one.timed for name, one in by_pod(path).items()} == {"a": False, "b": True}


async def test_what_was_bound_while_it_was_away_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a"), job("b"))
        await made.cycle()
        await bind(made, "b", "n0")
        pod = made.last_shown("Pod", "default/a-0")
        await begin(made, {**pod, "spec": {**pod["spec"], "nodeName": "n0"}, "status": {"phase": "Running"}})
    assert {name: one.timed for name, one in by_pod(path).items()} == {"a": False, "b": True}


async def test_a_pod_that_comes_again_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a"))
        await made.cycle()
        await made.delete("Pod", "default/a-0")
        again = job("a")[1]
        again["metadata"]["uid"] = "another"
        await made.show(again)
        await made.cycle()
        await bind(made, "a", "n0")
    kinds = sorted(one.kind for one in compare_shadow(path).differences)
    assert kinds[0] == "only-vcd"
    assert len(kinds) == 2


async def test_a_group_that_a_controller_names_later_is_its_group(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        group, pod = job("a", queue="small", cpu=3)
        await made.show({**pod, "metadata": {**pod["metadata"], "annotations": {}}})
        await made.show(group)
        await made.show(pod)
        await made.cycle()
        await bind(made, "a", "n0")
    told = by_pod(path)["a"]
    assert (told.queue, told.kind, told.cause) == ("small", "kept-back", "queue-deserved")


async def test_a_group_that_comes_again_is_another_one(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        group, pod = job("a", queue="small", cpu=3)
        first, again = ({**group, "metadata": {**group["metadata"], "uid": uid}} for uid in ("first", "again"))
        await made.show(first, pod)
        await made.cycle()
        await made.delete("PodGroup", "default/a")
        await made.show({**again, "spec": {**again["spec"], "queue": "default"}})  # its pod waits still
        await made.cycle()
        await bind(made, "a", "n0")
    told = by_pod(path)["a"]
    assert (told.queue, told.kind) == ("default", "other-node" if told.node == "n1" else "same-node")


async def test_of_a_pod_whose_group_is_gone_no_session_says_why_it_waits(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a", queue="small", cpu=3), job("b"))
        await made.cycle()
        await made.delete("PodGroup", "default/a")
        last = await made.cycle()
        await bind(made, "a", "n0")
    told = by_pod(path)["a"]
    assert (told.kind, told.session, told.why) == ("undecided", last.session, "")


async def test_a_log_whose_beginning_was_removed_tells_times_of_what_came_after(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a"))
        await made.cycle()
        await made.checkpoint()
        made.clock.now += 10 * SECOND
        await made.show(job("b"))
        await made.checkpoint()
        await made.log.retain(5 * SECOND, None, None)
        await made.show(job("c"))
        await made.cycle()
        for name in "abc":
            await bind(made, name, "n0")
    with LogReader(path) as reader:
        assert reader.oldest() > 0
    assert {name: one.timed for name, one in by_pod(path).items()} == {"a": False, "b": True, "c": True}


async def test_what_went_while_it_was_away_has_no_times(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a", phase="Pending"), job("b", phase="Pending"))
        await made.cycle()
        group = made.last_shown("PodGroup", "default/b")
        await made.tell(ev.LeadershipChanged(-1, "shadow", leading=False))
        await made.delete("Pod", "default/a-0")
        await made.show({**group, "status": {"phase": "Inqueue"}})
        await made.tell(ev.KindListed("Pod", "2"), ev.KindListed("PodGroup", "2"))
        await bind(made, "b", "n0")
    told = by_pod(path)
    assert {name: (one.kind == "only-vcd", one.timed) for name, one in told.items()} == {
        "a": (True, False),
        "b": (False, True),
    }
    groups = compare_shadow(path).admissions
    assert (groups.earlier, groups.not_earlier, groups.only_vcd) == (0, 0, 1)


async def test_a_victim_that_comes_again_is_gone(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path, EVICTING) as made:
        record = await reclaimed(made)
        first, *_ = record.accepted().operations("evict")
        shown = made.last_shown("Pod", first.key)
        await made.show({**shown, "metadata": {**shown["metadata"], "uid": "again"}})  # as a list shows it
    assert [one.pod for one in compare_shadow(path).evictions if one.gone_at] == [first.key]


async def test_pods_of_other_schedulers_are_left_out(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        (group, pod) = job("a")
        await made.show(group, {**pod, "spec": {**pod["spec"], "schedulerName": "default-scheduler"}})
        await made.cycle()
        await bind(made, "a", "n0")
    assert compare_shadow(path).differences == []


async def test_evictions_are_told_and_whether_they_came(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path, EVICTING) as made:
        record = await reclaimed(made)
        first, *_ = record.accepted().operations("evict")
        await made.cycle()
        await made.delete("Pod", first.key)
    told = compare_shadow(path).evictions
    assert {one.pod for one in told} == {one.key for one in record.accepted().operations("evict")}
    assert [(one.pod, one.session) for one in told if one.gone_at] == [(first.key, record.session)]


async def test_admissions_are_compared_by_group(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a", phase="Pending"), job("b", phase="Pending"))
        await made.cycle(seconds=4)
        shown = made.last_shown("PodGroup", "default/a")
        await made.show({**shown, "status": {"phase": "Inqueue"}})
    told = compare_shadow(path).admissions
    assert (told.earlier, told.not_earlier, told.only_vcd, told.p50) == (1, 0, 1, 4)


async def test_a_log_of_a_scheduler_is_refused(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "log")
    with pytest.raises(NoShadow, match="it is not the log of a shadow"):
        compare_shadow(tmp_path / "log")


# --- the fold ---------------------------------------------------------------------------------------------------------


async def test_nothing_of_what_a_shadow_decides_is_in_the_state(tmp_path: Path) -> None:
    for number, changes in (("1", False), ("2", True)):
        async with scheduler(tmp_path / number, EVICTING) as made:
            if not changes:
                await made.load(EVICTING, shadow="true")
            await made.show(dsl.node("n2", cpu=4), dsl.queue("default"), job("fits", phase="Pending"))
            await reclaimed(made)  # a session that binds, evicts and nominates
            held = made.state
            kept = (held.intents, held.nominated, held.immunity.evicted, held.intended_status, held.stranded)
            assert any(kept) is changes, kept


async def test_its_log_is_sound_and_replays(tmp_path: Path) -> None:
    path = tmp_path / "log"
    async with shadow(path) as made:
        await made.show(job("a"), job("b", queue="small", cpu=3))
        await made.cycle()
        await made.checkpoint()
        await made.show(job("c"))
        await made.cycle()
    assert verify(path).problems == []
    assert [one.difference for one in replay(path)] == [None, None]


# --- remarks ----------------------------------------------------------------------------------------------------------


async def test_a_shadows_log_is_remarked_on(tmp_path: Path) -> None:
    await write_shadow_history(tmp_path / "log")
    with opened(tmp_path / "log") as history:
        (told,) = remarks(history.reader)
    assert "nothing was carried out" in told


async def test_others_who_bind_are_remarked_on_until_the_next_term(tmp_path: Path) -> None:
    async with scheduler(tmp_path / "log") as made:
        await made.show(job("a"))
        for number in range(2):
            await made.tell(ev.ForeignBound(f"default/x-{number}", "u", "n0"))
        with opened(tmp_path / "log") as history:
            assert "2 pods" in remarks(history.reader)[0]
        await made.tell(ev.LeadershipChanged(2, "another", leading=True))
        with opened(tmp_path / "log") as history:
            assert remarks(history.reader) == []


async def test_faults_of_the_installation_are_remarked_on_while_they_last(tmp_path: Path) -> None:
    refused = ev.InstallationFault("write-refused", "patch podgroups 422", '422 Invalid: podgroups "secret" is invalid')
    lost = [ev.InstallationFault("no-group", name, "pods name none") for name in ("b", "a")]
    async with scheduler(tmp_path / "log") as made:
        await made.show(job("a"))
        for fault in (refused, *lost):
            await made.tell(fault)
            if fault is lost[0]:
                await made.checkpoint()
        with opened(tmp_path / "log") as history:
            first, second = remarks(history.reader)
            assert first.startswith("the API server refuses a write: patch podgroups 422: 422 Invalid: podgroups")
            assert second == (
                "pods belong to no PodGroup, so no session considers them: a: pods name none; look whether Volcano's "
                "controllers run, or use vcd run --controllers=podgroup (1 more subject)"
            )
            assert "secret" not in " ".join(remarks(history.reader, named=False))
        await made.tell(ev.InstallationFault(refused.code, refused.subject))
        with opened(tmp_path / "log") as history:
            assert [one.split(",")[0] for one in remarks(history.reader)] == ["pods belong to no PodGroup"]
