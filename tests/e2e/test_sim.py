"""Whole simulations: cluster, API server over HTTP, and daemon; what was done, and what the log holds of it."""

from __future__ import annotations

import asyncio
import itertools
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from bench import gputrace
from tests.sizes import some
from tests.waiting import WAIT_LIMIT
from vcd.cli.simulation import Scenario, Simulation
from vcd.embedded.controllers.controller_base import DEPLOYMENTS, JOBS, NODES, PODGROUPS, PODS, Obj
from vcd.embedded.controllers.pod_properties import TERMINAL, node_of, phase_of, requests_of
from vcd.embedded.store import Store
from vcd.embedded.workload_generator import generate, parse_mix, parse_nodes, parse_queues
from vcd.eventlog import LogReader
from vcd.model import events as ev
from vcd.model.quantity import resource_value
from vcd.timetravel.log_operations import verify
from vcd.timetravel.replay import replay

TRACE = Path(__file__).parents[1] / "data" / "trace"
NOWHERE = {"t-10"}
"""The task of the small trace that asks for more GPUs than any node of its model has."""


@dataclass
class Run:
    """A simulation that has ended: what the store saw happen and holds, and the log."""

    log: Path
    over: list[str] = field(default_factory=list)
    bound: Counter[str] = field(default_factory=Counter)
    names: set[str] = field(default_factory=set)
    left: dict[str, list[Obj]] = field(default_factory=dict)
    refused: list[tuple[str, str]] = field(default_factory=list)
    sessions: int = 0

    def outcomes(self) -> Counter[tuple[str, str]]:
        """How often each pod's bind had which outcome, by the log."""
        plans: dict[int, ev.Plan] = {}
        found: Counter[tuple[str, str]] = Counter()
        with LogReader(self.log) as reader:
            for logged in reader.read():
                if isinstance(logged.event, ev.SessionDecided):
                    plans[logged.event.session] = ev.decode_plan(logged.event.plan)
                elif isinstance(logged.event, ev.OperationDone):
                    done = logged.event
                    operation = plans[done.session].statements[done.statement].operations[done.operation]
                    found[operation.key, done.result] += 1
        return found


def _overfull(store: Store, name: str) -> Iterator[str]:
    """The resources of a node of which its pods that have not ended request more than it has."""
    node = store.get(NODES, "", name)
    used = Counter[str]()
    for pod in store.list(PODS):
        if node_of(pod) == name and phase_of(pod) not in TERMINAL:
            used.update({**requests_of(pod["spec"]), "pods": 1})
    for resource, text in node["status"]["allocatable"].items():
        if used[resource] > resource_value(resource, text):
            yield f"{name}: {resource}"


async def _run(plan: Scenario) -> Run:
    simulation = Simulation(plan)
    run = Run(plan.event_log)
    nodes: dict[str, str] = {}

    def note(event: str, _: str, pod: Obj) -> None:
        name = pod["metadata"]["name"]
        run.names.add(name)
        if node_of(pod) and nodes.get(pod["metadata"]["uid"]) != node_of(pod):
            nodes[pod["metadata"]["uid"]] = node_of(pod)
            run.bound[name] += 1
            run.over.extend(_overfull(simulation.store, node_of(pod)))

    simulation.store.subscribe([PODS], note)
    async with simulation:
        await asyncio.wait_for(simulation.wait(idle=True), WAIT_LIMIT)
        run.sessions = simulation.sessions
        run.refused = simulation.feeder.refused
        run.left = {kind: simulation.store.list(kind) for kind in (PODS, PODGROUPS, JOBS, DEPLOYMENTS)}
    return run


def _trace_plan(log: Path, compression: float = 1.0) -> Scenario:
    tasks = gputrace.read_tasks(TRACE / "pods.csv")
    arrivals = gputrace.arrivals(tasks, compression=compression)
    return Scenario(log, gputrace.read_nodes(TRACE / "nodes.csv"), gputrace.queues_of(tasks), arrivals)


@pytest.fixture(scope="module")
def mixed(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A mix of all kinds of workloads, more than the nodes hold at a time."""
    mix = parse_mix("gangs=4,jobs=3,deployments=2,pods=6,every=3,size=2-6,run=20-120")
    plan = Scenario(tmp_path_factory.mktemp("mixed") / "log", parse_nodes("4*cpu=32,memory=256Gi"))
    plan.queues, plan.seed = parse_queues("research:2,serving"), 11
    plan.arrivals = generate(mix, ["research", "serving"], 11)
    return asyncio.run(_run(plan))


@pytest.fixture(scope="module", params=some(1, [300.0, 1.0]), ids=["compressed", "as recorded"])
def traced(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """The small trace."""
    return asyncio.run(_run(_trace_plan(tmp_path_factory.mktemp("trace") / "log", request.param)))


def _ran(run: Run, prefix: str) -> Iterator[str]:
    return (phase_of(pod) for pod in run.left[PODS] if pod["metadata"]["name"].startswith(prefix))


def is_sound_and_replays(run: Run) -> bool:
    replayed = list(replay(run.log))
    assert verify(run.log).problems == []
    assert [one.session for one in replayed if one.difference is not None] == []
    return len(replayed) == run.sessions > 0


def test_workloads_of_every_kind_run_to_their_end(mixed: Run) -> None:
    assert set(_ran(mixed, "gang-")) == set(_ran(mixed, "pod-")) == {"Succeeded"}
    assert [job["status"]["state"]["phase"] for job in mixed.left[JOBS]] == ["Completed"] * 3
    have = [deployment["status"].get("readyReplicas") for deployment in mixed.left[DEPLOYMENTS]]
    assert have == [deployment["spec"]["replicas"] for deployment in mixed.left[DEPLOYMENTS]]
    assert mixed.refused == []


def test_each_pod_of_a_mix_is_bound_once_on_a_node_that_holds_no_more_than_it_has(mixed: Run) -> None:
    assert mixed.bound == dict.fromkeys(mixed.names, 1)
    assert mixed.over == []


def test_the_log_of_a_mix_is_sound_and_replays_identically(mixed: Run) -> None:
    assert is_sound_and_replays(mixed)


def test_each_task_of_a_trace_that_fits_is_bound_once_on_a_node_that_holds_no_more_than_it_has(traced: Run) -> None:
    assert traced.bound == dict.fromkeys(traced.names - NOWHERE, 1)
    assert traced.outcomes() == {(f"default/{name}", "done"): 1 for name in traced.bound}
    assert traced.over == []


def test_the_log_of_a_trace_is_sound_and_replays_identically(traced: Run) -> None:
    assert is_sound_and_replays(traced)


def test_tasks_of_a_trace_are_gone_when_they_are_to_be_removed(tmp_path: Path) -> None:
    plan = _trace_plan(tmp_path / "log")
    plan.remove_after = 0.0
    run = asyncio.run(_run(plan))
    left = itertools.chain(run.left[PODS], run.left[PODGROUPS])
    assert {obj["metadata"]["name"] for obj in left} == NOWHERE
    assert run.bound == dict.fromkeys(run.names - NOWHERE, 1)
