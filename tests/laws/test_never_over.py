"""Law 7 (docs/laws.md): no node, queue or gang where it must not be, no pod bound twice."""

from __future__ import annotations

from collections.abc import Iterator

from tests.laws.accounts import Accounts
from tests.laws.histories import History
from tests.sizes import seeds
from vcd.model import events as ev
from vcd.state.cluster_state import ClusterState

CLUSTERS = seeds(10, 120)
CYCLES = 10


def binds(operations: tuple[ev.Operation, ...]) -> list[str]:
    return [operation.key for operation in operations if operation.verb == "bind"]


def decided() -> Iterator[tuple[str, Accounts, ev.Plan]]:
    """Each session's plan with the accounts as they were before it, under the compiled-in configuration."""
    for seed in CLUSTERS:
        history, before = History(seed, conf=None), ClusterState()
        for count, plan in enumerate(history.live(CYCLES)):
            assert history.session is not None
            for event in history.log[before.sequence : history.session.snapshot.sequence]:
                before.apply(before.sequence + 1, event)
            yield f"seed {seed}, cycle {count}", Accounts(before), plan


def test_no_session_puts_a_node_a_queue_or_a_gang_where_it_must_not_be() -> None:
    for where, accounts, plan in decided():
        for statement in plan.statements:
            bound = binds(statement.operations)
            accounts.bind(statement.operations)
            if bound:
                assert accounts.short_of(statement.group) <= 0, f"{where}: {statement.group} is not whole"
            for node in sorted({accounts.node_of[key] for key in bound}):
                here = [key for key in bound if accounts.node_of[key] == node]
                assert not accounts.over_on(node, here), f"{where}: {node} is over"
            for queue in sorted({accounts.queue_of(key) for key in bound}):
                assert not accounts.over_in(queue, bound), f"{where}: queue {queue} is over"


def test_no_pod_is_bound_twice() -> None:
    for seed in CLUSTERS:
        history = History(seed)
        bound: list[str] = []
        for plan in history.live(CYCLES):
            bound += [key for statement in plan.statements for key in binds(statement.operations)]
        assert len(set(bound)) == len(bound), f"seed {seed}"


def test_histories_come_to_rest() -> None:
    for seed in CLUSTERS:
        history = History(seed, conf=None)
        list(history.live(4))
        history.rest()
        assert not [key for statement in history.decide().statements for key in binds(statement.operations)]
