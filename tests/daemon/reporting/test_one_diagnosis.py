"""Over random histories, no two surfaces disagree about a wait: the condition, which Events and conditions of pods
repeat, explain job, explain queue, top, the page and the list of jobs."""

from __future__ import annotations

import asyncio
import random
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.reporting.test_verdicts import CONF, Replica, replica_on
from tests.dsl import gang, node, queue
from tests.kube.scripted import FakeClock
from tests.sizes import some
from tests.waiting import until
from vcd.model import events as ev
from vcd.model.manifests import default_queues
from vcd.scheduling.configuration import read_policy
from vcd.text.causes import shortened
from vcd.text.condition_texts import sentence_of
from vcd.timetravel.joblist import jobs
from vcd.timetravel.log_queries import Log
from vcd.timetravel.overview import overview
from vcd.timetravel.why.longestcauses import DIAGNOSED, longest_waits
from vcd.view.answers import _waits_at, forget, waits_of

KEY = re.compile(r" \([^()]*\)(?=( and \d+ other jobs?)? first)|; \d+ later jobs? overtook it$")
"""What put another job first, and how many others overtook it: only the answer about one job has that."""
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
async def test_no_two_surfaces_disagree_about_one_wait(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, clock, happening = tmp_path / "log", FakeClock(), Happenings(seed)
    at_rest = False
    for module in ("history", "why.longestcauses"):  # in a cluster at rest waits go on
        as_of = f"vcd.timetravel.{module}.as_of"
        monkeypatch.setattr(as_of, lambda reader: clock.wall() if at_rest else reader.last_time())
    async with replica_on(path, clock) as replica:
        policy = read_policy(CONF)
        await replica.state_writer.put([ev.PolicyLoaded(policy.digest, policy.text, {})])
        await replica.happen(*default_queues([]), queue("q"), node("n-0", cpu=4), gang("first", 1, cpu=9))
        for _ in range(STEPS):
            replica.causes.clear()
            await replica.session(*happening.next())
            _compare(path, replica, {})
        await _let_delays_pass(replica)
        at_rest = True
        _compare(path, replica, {key: sentence_of(message) for key, message in replica.shows.items()})


async def _let_delays_pass(replica: Replica) -> None:
    """Let time pass until the daemon has nothing left to report of a cluster at rest."""
    clock, known = replica.clock, replica.verdicts
    while known._delayed or known._overtaken:
        await until(lambda: clock.sleeping)
        clock.advance(clock.next_wake - clock.now)
        for _ in range(20):  # until the daemon runs
            await asyncio.sleep(0)
        await known.idle.wait()


def _compare(path: Path, replica: Replica, conditions: dict[str, str]) -> None:
    """Compare the diagnoses that all surfaces have of each group that waits after the last session."""
    forget()
    _waits_at.cache_clear()
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
            assert (verdict.cause, KEY.sub("", verdict.why)) == (row.cause, row.text), key
            assert verdict.still
            assert page[key].why == row.why
            for listed in (found[key] for found in (top, inside) if key in found):
                assert (listed.cause, listed.text, listed.why) == (row.cause, row.text, row.why)
            if key in replica.causes:
                assert replica.causes[key] == row.cause
            if conditions:
                told = conditions[key]
                assert told == shortened(row.text) or told.startswith(f"{shortened(row.text)}; ")
