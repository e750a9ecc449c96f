"""docs/laws.md: what changes after decide drops statements whole (law 3); what is accepted keeps law 7 at the head."""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass

import msgspec
import pytest

from tests.laws.accounts import Accounts
from tests.laws.histories import History
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload
from vcd.model.status import TaskStatus
from vcd.scheduling import statement_verification
from vcd.scheduling.decide import run
from vcd.scheduling.session_close import plan_of
from vcd.scheduling.statement_verification import stale_statements
from vcd.state.snapshot import Snapshot

CLUSTERS = seeds(24, 210)
CYCLES = 6


@dataclass
class Head:
    """One session: the accounts that its statements were verified against, and what was intended by it afterwards."""

    where: str
    accounts: Accounts
    pending: set[str]
    plan: ev.Plan
    stale: dict[int, str]
    one_by_one: dict[int, str]
    intended: dict[int, set[str]]

    def accepted(self) -> Iterator[ev.Statement]:
        """The statements that held."""
        return (statement for number, statement in enumerate(self.plan.statements) if number not in self.stale)


class Late(History):
    """A history in which things happen between decide and log: ``changes`` of them in each cycle."""

    def __init__(self, seed: int, changes: int) -> None:
        super().__init__(seed, conf=None)
        self.seed, self.changes = seed, changes
        self.heads: list[Head] = []

    def decide(self) -> ev.Plan:
        """One session with changes before it is verified; returns what held of the plan."""
        snapshot = self.maker.snapshot()
        self.session = run(snapshot, self.policy, self.now, 0, self.memory)
        plan = plan_of(self.session)
        for _ in range(self.changes):
            self.random.choice((self.vanish, self.shrink, self.node_goes, self.elsewhere, self.recreate))()
        stale = stale_statements(plan, self.maker.snapshot(), snapshot)
        one_by_one = _looked_at_one_by_one(plan, self.maker.snapshot(), snapshot)
        accounts, pending, number = Accounts(self.state), self._pending(), self.state.session + 1
        digest, encoded = self.policy.digest, ev.encode_plan(plan)
        self.happen(ev.SessionDecided(number, snapshot.sequence, digest, self.now, 0, 1, {}, encoded, stale))
        self.now += 1_000_000_000
        intended: dict[int, set[str]] = {}
        for key, intent in self.state.intents.items():
            if intent.session == number:
                intended.setdefault(intent.statement, set()).add(key)
        where = f"seed {self.seed}, session {number}"
        self.heads.append(Head(where, accounts, pending, plan, dict(stale), dict(one_by_one), intended))
        held = [
            statement if number not in dict(stale) else msgspec.structs.replace(statement, operations=())
            for number, statement in enumerate(plan.statements)
        ]
        return msgspec.structs.replace(plan, statements=tuple(held))

    def recreate(self) -> None:
        """A pod that waits is deleted, and another of its name is there."""
        key = self._some_pod(TaskStatus.PENDING)
        pod = self.state.pod(key) if key else None
        if pod is not None:
            self.remove("Pod", key)
            meta = msgspec.structs.replace(pod.metadata, uid=f"{pod.metadata.uid}-again")
            self.happen(ev.ObjectPut("Pod", key, "", encode_payload(msgspec.structs.replace(pod, metadata=meta))))

    def _pending(self) -> set[str]:
        column = self.state.tasks.column("status")
        return {key for key, row in self.state.tasks.row_of.items() if column[row] == TaskStatus.PENDING}


def _looked_at_one_by_one(plan: ev.Plan, head: Snapshot, base: Snapshot) -> tuple[tuple[int, str], ...]:
    """The verdict when no statement is taken to hold because there is room for all together."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(statement_verification._Head, "doubtful", lambda _, statements: [True] * len(statements))
        return stale_statements(plan, head, base)


@functools.cache
def heads() -> tuple[Head, ...]:
    """All sessions of all clusters."""
    found: list[Head] = []
    for seed in CLUSTERS:
        history = Late(seed, changes=3)
        list(history.live(CYCLES))
        found += history.heads
    return tuple(found)


def binds(statement: ev.Statement) -> list[ev.Operation]:
    return [operation for operation in statement.operations if operation.verb == "bind"]


def test_no_statement_is_half_intended() -> None:
    for head in heads():
        for number, statement in enumerate(head.plan.statements):
            expected = set() if number in head.stale else {operation.key for operation in binds(statement)}
            assert head.intended.get(number, set()) == expected, f"{head.where}, statement {number}"


def test_statements_looked_at_together_fare_as_one_by_one() -> None:
    for head in heads():
        assert head.stale == head.one_by_one, head.where


def test_what_is_accepted_binds_pods_that_wait_to_nodes_that_are_there_and_have_room() -> None:
    for head in heads():
        accounts = head.accounts.copy()
        for statement in head.accepted():
            accounts.bind(statement.operations)
            for operation in binds(statement):
                assert operation.key in head.pending, f"{head.where}: {operation.key} does not wait"
                assert accounts.pods[operation.key].metadata.uid == operation.uid, head.where
                assert operation.node in accounts.nodes, f"{head.where}: {operation.node} is gone"
                over = accounts.over_on(operation.node, [operation.key])
                assert not over, f"{head.where}: {operation.node} is over in {over}"


def test_what_is_accepted_keeps_queues_within_their_capability() -> None:
    for head in heads():
        accounts = head.accounts.copy()
        for statement in head.accepted():
            accounts.bind(statement.operations)
            bound = [operation.key for operation in binds(statement)]
            for queue in sorted({accounts.queue_of(key) for key in bound} - {""}):
                over = accounts.above_capability(queue, bound)
                assert not over, f"{head.where}: queue {queue} is over in {over}"


def test_what_a_gang_gets_beyond_its_minimum_does_not_come_without_the_minimum() -> None:
    for head in heads():
        accounts = head.accounts.copy()
        dropped: set[str] = set()
        for number, statement in enumerate(head.plan.statements):
            if number in head.stale:
                dropped.add(statement.group)
                continue
            accounts.bind(statement.operations)
            if binds(statement) and statement.group in dropped & accounts.groups.keys():
                assert accounts.short_of(statement.group) <= 0, f"{head.where}: {statement.group} is not whole"


def test_nothing_is_dropped_when_nothing_changed() -> None:
    for seed in CLUSTERS[::3]:
        history = Late(seed, changes=0)
        list(history.live(CYCLES))
        assert not [head.where for head in history.heads if head.stale]


def test_the_changes_do_make_statements_stale() -> None:
    found = heads()
    assert sum(len(head.stale) for head in found) > len(CLUSTERS) // 2
    assert sum(len(list(head.accepted())) for head in found) > len(CLUSTERS) // 2
