"""Histories without a daemon: what it would log, appended and folded in the same order."""

from __future__ import annotations

import asyncio
import datetime
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests import dsl
from tests.dsl import Manifest
from tests.eventlog.samples import SECOND, Clock
from vcd.eventlog import EventLog
from vcd.model import events as ev
from vcd.model.projection_codec import encode_payload, from_manifest
from vcd.scheduling.decide import decide, versions
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.statement_verification import stale_statements
from vcd.state.cluster_state import ClusterState
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.history import opened

START = int(datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC).timestamp()) * SECOND
CONF = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: overcommit
  - name: drf
  - name: proportion
"""
SCORED = CONF + "  - name: nodeorder\n  - name: predicates\n"


def put(manifest: Manifest) -> ev.ObjectPut:
    """The event of a manifest, as a watch would bring it."""
    kind, obj, version = from_manifest(manifest)
    return ev.ObjectPut(kind, obj.key, version, encode_payload(obj))


class Scheduler:
    """A state, a log and a memory, driven by hand."""

    def __init__(self, log: EventLog, clock: Clock) -> None:
        self.log = log
        self.clock = clock
        self.state = ClusterState()
        self._maker = SnapshotMaker(self.state)
        self._memory = Memory()
        self.policy: Policy
        self._shown: dict[str, Manifest] = {}

    async def tell(self, *events: ev.Event) -> None:
        """Log events, then fold them."""
        last = await self.log.append(events)
        for number, event in enumerate(events, last - len(events) + 1):
            self.state.apply(number, event)

    def read(self, conf: str, **settings: str) -> ev.PolicyLoaded:
        """Decide by another configuration from now on; the event that says so."""
        self.policy = dsl.policy_of(conf)
        return ev.PolicyLoaded(self.policy.digest, self.policy.text, settings)

    async def load(self, conf: str, **settings: str) -> None:
        """Put a configuration into force."""
        await self.tell(self.read(conf, **settings))

    async def show(self, *objects: Manifest | Iterable[Manifest]) -> None:
        """What the API server shows, new or changed."""
        await self.tell(*map(self.shown, dsl.flat(objects)))

    def shown(self, manifest: Manifest) -> ev.ObjectPut:
        """The event of a manifest, which is remembered as what the API server has."""
        event = put(manifest)
        self._shown[f"{event.kind} {event.key}"] = manifest
        return event

    def last_shown(self, kind: str, key: str) -> Manifest:
        """An object as it was shown last."""
        return self._shown[f"{kind} {key}"]

    async def delete(self, kind: str, key: str) -> None:
        """An object goes."""
        del self._shown[f"{kind} {key}"]
        await self.tell(ev.ObjectGone(kind, key))

    async def cycle(
        self,
        *meanwhile: ev.Event,
        seconds: float = 1,
        forge: Callable[[ev.Plan], ev.Plan] = lambda plan: plan,
        made_by: dict[str, str] | None = None,
    ) -> ev.SessionDecided:
        """One session; ``meanwhile`` is logged while it decides, and the plan that is logged is what ``forge`` makes
        of the one decided, ``made_by`` other versions than these. Then time passes."""
        snapshot = self._maker.snapshot()
        plan = forge(decide(snapshot, self.policy, self.clock.now, 7, self._memory))
        await self.tell(*meanwhile)
        stale = stale_statements(plan, self._maker.snapshot(), snapshot) if meanwhile else ()
        record = ev.SessionDecided(
            session=self.log.last_session + 1,
            head=snapshot.sequence,
            policy=self.policy.digest,
            now=self.clock.now,
            seed=7,
            epoch=self.state.epoch,
            versions=versions() if made_by is None else made_by,
            plan=ev.encode_plan(plan),
            stale=stale,
        )
        await self.tell(record)
        self.clock.now += int(seconds * SECOND)
        return record

    async def carry_out(self, record: ev.SessionDecided, result: ev.Result = "done", detail: str = "") -> None:
        """Outcomes of a session's calls; what was done is then shown: pods run, groups have their phases."""
        plan = ev.decode_plan(record.plan)
        for i, statement in enumerate(plan.statements):
            if i in dict(record.stale):
                continue
            for j, operation in enumerate(statement.operations):
                if operation.verb == "pipeline":
                    continue
                await self.tell(ev.OperationDone(record.session, i, j, result, detail))
                if result == "done" and operation.verb == "bind":
                    await self._run(operation)
                elif result == "done" and operation.verb == "ungate":
                    shown = self._shown[f"Pod {operation.key}"]
                    await self.show({**shown, "spec": {**shown["spec"], "schedulingGates": []}})
                elif result == "done":
                    await self.delete("Pod", operation.key)
        for status in plan.groups:
            await self._write_status(status)

    async def _write_status(self, status: ev.GroupStatus) -> None:
        shown = self._shown[f"PodGroup {status.key}"]
        fields: dict[str, Any] = {**shown["status"], "phase": status.phase}
        fields |= {"running": status.running, "succeeded": status.succeeded, "failed": status.failed}
        if status.condition is not None:
            kind, value, reason, message = status.condition
            fields["conditions"] = [{"type": kind, "status": value, "reason": reason, "message": message}]
        await self.show({**shown, "status": fields})

    async def _run(self, operation: ev.Operation) -> None:
        pod = self._shown[f"Pod {operation.key}"]
        spec: dict[str, Any] = {**pod["spec"], "nodeName": operation.node}
        await self.show({**pod, "spec": spec, "status": {"phase": "Running"}})

    async def finish(self, key: str, phase: str = "Succeeded") -> None:
        """A running pod ends."""
        pod = self._shown[f"Pod {key}"]
        await self.show({**pod, "status": {"phase": phase}})

    async def checkpoint(self) -> None:
        """Keep the state as it is now."""
        await self.log.checkpoint(self.state.sequence, self.state.dump())


@asynccontextmanager
async def scheduler(path: Path, conf: str = CONF, epoch: int = 1, *, leading: bool = True) -> AsyncIterator[Scheduler]:
    """A scheduler with a new log at ``path``, leading unless told otherwise, at the beginning of 2026."""
    clock = Clock(START)
    async with EventLog.open(path, clock=clock) as log:
        made = Scheduler(log, clock)
        await made.load(conf)
        if leading:
            await made.tell(ev.LeadershipChanged(epoch, f"replica-{epoch}", leading=True))
        yield made


_written: list[bytes] = []


async def write_busy_history(path: Path) -> None:
    """The log of ``_busy_history``; it is played once, then copied."""
    if _written:
        await asyncio.to_thread(path.write_bytes, _written[0])
        return
    await _busy_history(path)
    _written.append(await asyncio.to_thread(path.read_bytes))


async def _busy_history(path: Path) -> None:
    """Two queues, gangs that come, wait, run and end over eight sessions, one of them decided while events came,
    one with a bind that failed, and a checkpoint in the middle."""
    async with scheduler(path) as made:
        await made.show(
            [dsl.node(f"n{i}", cpu=8) for i in range(4)],
            dsl.queue("root"),
            dsl.queue("default"),
            dsl.queue("small", capability={"cpu": "8"}),
        )
        await made.show(dsl.gang("first", 3, cpu=4, phase="Pending", minimum={"cpu": 12}))
        await made.carry_out(await made.cycle(), "failed", "the node does not answer")
        await made.carry_out(await made.cycle())
        await made.show(dsl.gang("second", 2, cpu=3, phase="Pending", minimum={"cpu": 6}, queue="small", created=1))
        coming = [made.shown(one) for one in dsl.gang("third", 2, cpu=2, phase="Pending", queue="small", created=2)]
        await made.carry_out(await made.cycle(*coming))
        await made.carry_out(await made.cycle())
        await made.checkpoint()
        for i in range(3):
            await made.finish(f"default/first-{i}")
        await made.carry_out(await made.cycle())
        await made.show(dsl.gang("large", 5, cpu=7, phase="Pending", minimum={"cpu": 35}, created=5))
        await made.carry_out(await made.cycle(seconds=600))
        await made.show(dsl.node("n4", cpu=8))
        await made.carry_out(await made.cycle(seconds=60))
        await made.show(dsl.node("n4", cpu=24))
        await made.carry_out(await made.cycle())


async def write_takeover(path: Path) -> None:
    """The log of two replicas: a job too large waits under the first, and is bound a minute later under the second,
    which takes over and sees the node grow."""
    async with scheduler(path, epoch=1) as made:
        await made.show(dsl.node("n1", cpu=4), [*dsl.gang("job", 1, cpu=8), dsl.queue("default")])
        await made.cycle()
        await made.tell(ev.LeadershipChanged(1, "replica-1", leading=False))
        made.clock.now += 60 * SECOND
        await made.tell(ev.LeadershipChanged(2, "replica-2", leading=True))
        await made.show(dsl.node("n1", cpu=8))
        await made.carry_out(await made.cycle())


async def write_history_that_begins_amid_a_session(path: Path) -> None:
    """A log that retention let begin with a checkpoint of what came while session 1 was decided: it is there, and the
    state that it was decided from is not."""
    async with scheduler(path) as made:
        await made.show(
            dsl.node("n", cpu=4), dsl.queue("default"), dsl.gang("job", 1, cpu=1), dsl.gang("big", 2, cpu=3)
        )
        record = await made.cycle(*map(made.shown, dsl.gang("late", 1, cpu=1)))
        with opened(path) as history:
            amid = history.state(record.head + 1).dump()
        await made.log.checkpoint(record.head + 1, amid)
        await made.cycle()
        await made.log.retain(max_age=0)
