"""Law 3: what changes between decide and log drops statements whole, and what is accepted keeps law 7 at the head."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.laws.accounts import Accounts
from tests.laws.histories import History
from vcd.model import events as ev
from vcd.model.status import TaskStatus
from vcd.scheduling.closing import plan_of
from vcd.scheduling.decide import decide, run
from vcd.scheduling.verify import stale_statements
from vcd.state.snapshot import SnapshotMaker

CLUSTERS, CYCLES, BATCHES = 200, 6, 3


class Late(History):
    """A history in which things happen between decide and log: ``changes`` of them in each cycle."""

    changes = 6

    def __init__(self, seed: int) -> None:
        super().__init__(seed, conf=None)
        self.heads: list[tuple[Accounts, ev.SessionDecided]] = []

    def decide(self) -> ev.Plan:
        snapshot = self.maker.snapshot()
        self.session = run(snapshot, self.policy, self.now, 0, self.memory)
        plan = plan_of(self.session)
        for _ in range(self.changes):
            self.random.choice((self.vanish, self.shrink, self.node_goes, self.elsewhere, self.recreate))()
        stale = stale_statements(plan, self.maker.snapshot())
        digest, number = self.policy.digest, self.state.session + 1
        record = ev.SessionDecided(number, snapshot.sequence, digest, self.now, 0, 1, {}, ev.encode_plan(plan), stale)
        self.heads.append((Accounts(self.state), record))
        self.happen(record)
        self.now += 1_000_000_000
        dropped = dict(stale)
        accepted = [() if number in dropped else s.operations for number, s in enumerate(plan.statements)]
        statements = tuple(
            ev.Statement(s.group, s.action, operations) for s, operations in zip(plan.statements, accepted, strict=True)
        )
        return ev.Plan(statements=statements, groups=plan.groups, queues=plan.queues)

    def recreate(self) -> None:
        """A pod that waits is deleted, and another of its name is there."""
        key = self._some_pod(TaskStatus.PENDING)
        pod = self.state.pod(key) if key else None
        if pod is not None:
            self.remove("Pod", key)
            self.random.random()
            self.put_again(key, pod)


def statements(batch: int) -> Iterator[tuple[str, Accounts, ev.SessionDecided, ev.Plan]]:
    for seed in range(batch, CLUSTERS, BATCHES):
        history = Late(seed)
        list(history.live(CYCLES))
        for accounts, record in history.heads:
            yield f"seed {seed}, session {record.session}", accounts, record, ev.decode_plan(record.plan)
