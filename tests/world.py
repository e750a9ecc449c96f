"""A cluster that answers: cycles are decided, logged in memory, and carried out as a server and kubelets would.

For tests that need more than one cycle and no I/O. Every session is kept, and can be decided again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import msgspec
import pytest

from tests.dsl import NOW_NS, flat, policy_of
from vcd.model import events as ev
from vcd.model.manifests import default_queues, defaulted
from vcd.model.objects import Pod
from vcd.model.projection_codec import encode_payload, from_manifest, kinds_of
from vcd.scheduling import decide
from vcd.scheduling.framework.declared_reasons import Told, all_told
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import PluginOption
from vcd.scheduling.framework.registry import kinds_read
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.session import Session
from vcd.scheduling.session_close import plan_of
from vcd.scheduling.statement_verification import stale_statements
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker

Manifest = dict[str, Any]


@contextmanager
def asked_first(*asked: Plugin) -> Iterator[None]:
    """While it lasts, sessions have these plugins, too, in a tier before all others."""
    with pytest.MonkeyPatch.context() as patched:
        made, tiers = decide.instances, [[(PluginOption(each.name, {}, {}), each) for each in asked]] if asked else []
        patched.setattr(decide, "instances", lambda *given: [*tiers, *made(*given)])
        yield


class World:
    """A state, and the log of everything that happened to it. ``observers`` are asked before all plugins."""

    observers: Sequence[Plugin] = ()

    def __init__(self, *objects: Manifest | Iterable[Manifest], conf: str | None = None, memory: bool = True) -> None:
        self.state = ClusterState()
        self.log: list[ev.Event] = []
        self.policy = policy_of(conf)
        self.kinds = kinds_read(self.policy)
        self.memory = Memory() if memory else None
        self.maker = SnapshotMaker(self.state)
        self.now = NOW_NS
        self.evicted: list[str] = []
        self.session: Session | None = None
        self.happen(ev.PolicyLoaded(self.policy.digest, self.policy.text))
        manifests = flat(objects)
        self.put(*default_queues(manifests), *manifests)

    def happen(self, *events: ev.Event) -> None:
        """Log and fold events."""
        for event in events:
            self.log.append(event)
            self.state.apply(len(self.log), event)

    def put(self, *manifests: Manifest | Iterable[Manifest]) -> None:
        """Objects appear or change; those of kinds that no plugin of the configuration declares are not seen."""
        for manifest in flat(manifests):
            manifest = defaulted(manifest, self.kinds)
            for read in kinds_of(manifest, self.kinds):
                kind, obj, version = from_manifest(manifest, (read,))
                self.happen(ev.ObjectPut(kind, obj.key, version, encode_payload(obj)))

    def remove(self, kind: str, *keys: str) -> None:
        """Objects are deleted."""
        self.happen(*[ev.ObjectGone(kind, key) for key in keys])

    def update_pod(self, key: str, *, node: str | None = None, phase: str | None = None) -> None:
        """A pod's node or phase changes."""
        pod = self.state.pod(key)
        assert pod is not None
        if node is not None:
            pod = msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec, node_name=node))
        if phase is not None:
            pod = msgspec.structs.replace(pod, status=msgspec.structs.replace(pod.status, phase=phase))
        self.happen(ev.ObjectPut("Pod", key, "", encode_payload(pod)))

    def decide(self) -> ev.Plan:
        """One session, logged; nothing of it is carried out yet."""
        snapshot = self.maker.snapshot()
        with asked_first(*self.observers):
            self.session = decide.run(snapshot, self.policy, self.now, 0, self.memory)
        plan = plan_of(self.session)
        self.happen(
            ev.SessionDecided(
                self.state.session + 1,
                snapshot.sequence,
                self.policy.digest,
                self.now,
                0,
                1,
                {},
                ev.encode_plan(plan),
                stale_statements(plan, self.maker.snapshot(), snapshot),
            )
        )
        self.now += 1_000_000_000
        return plan

    def leave(self, key: str) -> None:
        """What becomes of a pod that is evicted: it is gone at once."""
        self.remove("Pod", key)

    def cycle(self) -> ev.Plan:
        """One session, carried out: bound pods run, evicted ones leave."""
        plan = self.decide()
        for index, statement in enumerate(plan.statements):
            for position, operation in enumerate(statement.operations):
                if operation.verb == "bind":
                    self.update_pod(operation.key, node=operation.node, phase="Running")
                elif operation.verb == "evict":
                    self.evicted.append(operation.key)
                    self.leave(operation.key)
                else:
                    continue
                self.happen(ev.OperationDone(self.state.session, index, position, "done"))
        return plan

    def rest(self, limit: int = 30) -> int:
        """Cycles until nothing more is decided; how many it took."""
        for count in range(limit):
            plan = self.cycle()
            if not any(op.verb != "pipeline" for s in plan.statements for op in s.operations) and not plan.groups:
                return count
        raise AssertionError(f"no rest after {limit} cycles")

    # --- looking ------------------------------------------------------------------------------------------------------

    def placed(self, prefix: str = "") -> dict[str, str]:
        """Pods that run, by key (whose name begins with a prefix), and their nodes."""
        found = {}
        for key in sorted(self.state.tasks.row_of):
            pod = self.state.pod(key)
            if isinstance(pod, Pod) and pod.spec.node_name and key.partition("/")[2].startswith(prefix):
                found[key.partition("/")[2]] = pod.spec.node_name
        return found

    def why(self, group: str) -> list[Told]:
        """What a group waits for, as it is shown."""
        return list(all_told(self.state.waiting.get(f"default/{group}", ())))

    def reasons(self, group: str) -> str:
        """What a group waits for, as one text."""
        return "; ".join(f"{w.gate}: {w.reason} {w.detail}" for w in self.why(group))
