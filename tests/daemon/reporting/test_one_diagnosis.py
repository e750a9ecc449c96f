"""Over random histories, no two surfaces disagree about a wait: the condition, which Events and conditions of pods
repeat, explain job, explain queue, top, the page and the list of jobs."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.reporting.test_verdicts import CONF, Replica, replica_on
from tests.dsl import gang, node, queue
from tests.kube.scripted import FakeClock
from tests.sizes import some
from tests.waiting import until
from vcd.daemon.reporting.verdicts import LONGEST_DELAY
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.configuration import read_policy
from vcd.text.causes import shortened
from vcd.text.conditions import sentence_of
from vcd.timetravel.joblist import jobs
from vcd.timetravel.log import Log
from vcd.timetravel.overview import DIAGNOSED, longest_waits, overview
from vcd.view.answers import forget, waits_of

STEPS = 7
HOLD = {"schedulingGates": [{"name": "example.com/hold"}]}
SPECS: tuple[dict[str, Any], ...] = ({}, {}, {}, {"nodeSelector": {"tier": "b"}}, HOLD)


class Happenings:
    """What happens to a small cluster: nodes and a queue change, jobs arrive and end."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._jobs = self._second = 0

    def next(self) -> list[Any]:
        """Return objects as they are observed next."""
        self._second += 10
        kinds: list[Callable[[], Any]] = [self._arrival, self._arrival, self._node, self._queue]
        return [self._random.choice(kinds)() for _ in range(self._random.randint(1, 3))]

    def _arrival(self) -> Any:
        self._jobs, chosen = self._jobs + 1, self._random.choice
        where: dict[str, Any] = {"queue": chosen(("default", "default", "q", "missing")), "created": self._second}
        return list(
            gang(f"job-{self._jobs}", chosen((1, 1, 2, 3)), cpu=chosen((1, 2, 5, 9)), spec=chosen(SPECS), **where)
        )

    def _node(self) -> Any:
        labels, is_cordoned = {"tier": self._random.choice("ab")}, self._random.random() < 0.2
        name = f"n-{self._random.randint(0, 2)}"
        return node(name, cpu=self._random.choice((2, 4, 8)), labels=labels, unschedulable=is_cordoned)

    def _queue(self) -> Any:
        capability = {"cpu": self._random.choice((1, 4))} if self._random.random() < 0.5 else {}
        return queue("q", state=self._random.choice(("Open", "Open", "Closed")), capability=capability)


@pytest.mark.parametrize("seed", some(3, range(40)))
async def test_no_two_surfaces_disagree_about_one_wait(tmp_path: Path, seed: int) -> None:
    path, clock, happening = tmp_path / "log", FakeClock(), Happenings(seed)
    async with replica_on(path, clock) as replica:
        policy = read_policy(CONF)
        await replica.state_writer.put([ev.PolicyLoaded(policy.digest, policy.text, {})])
        await replica.happen(*default_queues([]), queue("q"), node("n-0", cpu=4), gang("first", 1, cpu=9))
        for _ in range(STEPS):
            replica.causes.clear()
            await replica.session(*happening.next())
            _compare(path, replica, {})
        await _let_delays_pass(replica)
        _compare(path, replica, {key: sentence_of(message) for key, message in replica.shows.items()})


async def _let_delays_pass(replica: Replica) -> None:
    while replica.verdicts._delayed:
        count = len(replica.verdicts._delayed)
        await replica.clock.advance_when_asleep(LONGEST_DELAY)
        await until(lambda before=count: len(replica.verdicts._delayed) < before)  # type: ignore[misc]


def _compare(path: Path, replica: Replica, conditions: dict[str, str]) -> None:
    """Compare the diagnoses that all surfaces have of each group that waits after the last session."""
    forget()
    with Log(path) as log, log.pinned():
        history, number = log.history, log.history.reader.last_session()
        rows = {f"{one.namespace}/{one.group}": one for one in jobs(history).jobs if one.cause}
        top = {one.group: one for one in longest_waits(history, number, overview(history, number).jobs)}
        inside = {one.group: one for name in ("default", "q") for one in log.queue(name).waits}
        page = {one.group: one for one in waits_of(str(path), number)}
        assert rows.keys() == replica.state_writer.state.waiting.keys() == page.keys()
        assert len(top) == min(len(rows), DIAGNOSED)
        assert inside.keys() <= rows.keys()
        for key, row in rows.items():
            verdict = log.job(key).verdict()
            assert (verdict.cause, verdict.why, verdict.subject) == (row.cause, row.text, verdict.subject)
            assert verdict.still
            assert page[key].why == row.why
            for listed in (found[key] for found in (top, inside) if key in found):
                assert (listed.cause, listed.text, listed.why, listed.subject) == (
                    row.cause, row.text, row.why, verdict.subject,
                )  # fmt: skip
            if key in replica.causes:
                assert replica.causes[key] == row.cause
            if conditions:
                told = conditions[key]
                assert told == shortened(row.text) or told.startswith(f"{shortened(row.text)}; ")
