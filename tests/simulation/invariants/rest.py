"""What holds once nothing goes wrong any more: one leader that knows all, has done all, says what is so, and rests."""

from __future__ import annotations

import asyncio
import datetime
import re
from collections import Counter, deque
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS, QUEUES
from tests.laws.liveness import Search
from tests.parity.cases import NOW
from tests.reference import Result, decide
from tests.simulation.invariants.relisted import unlike_listed
from tests.simulation.invariants.topology import ENTRY, held_back, limited_groups
from tests.simulation.invariants.truth import Truth, group_of, key_of
from tests.simulation.invariants.witness import Call, Witness
from tests.simulation.machine import EPOCH
from tests.simulation.raising import without_it
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.embedded.cluster_clock import parse_timestamp
from vcd.embedded.status_errors import StatusError
from vcd.kube.clock import SteadyClock
from vcd.model.kinds import Kind
from vcd.model.projection_codec import BadObject, encode_payload, from_manifest, payload_digest
from vcd.scheduling.framework.declared_reasons import declared
from vcd.state.interning import Interner

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

Obj = dict[str, Any]
LOOKED_AT = 20.0
"""Seconds at the end during which calls are counted."""
MOST_CALLS = 12
"""Calls in that time beside those of the election: watches that are opened again, and a few more."""
LOOKS = 15
"""How often that time may pass until it is so: pods end by and by, what is paced comes later, and a watch whose end was
not heard is begun anew after a while (``watcher.IDLE_TIMEOUT``)."""
HEARD = 1.0
"""Seconds in which replicas hear of a change at the latest, where nothing goes wrong any more."""
MOST_TASKS = 120
"""Tasks of one replica at rest."""
_SERIES = re.compile(r'\b(queue|queue_name|victim_queue|job_name|job_id)="([^"]*)"')


class Rest:
    """Looks at servers and replicas at the end of a run."""

    def __init__(self, sim: Simulation, witness: Witness) -> None:
        self._sim = sim
        self._calls: deque[Call] = deque(maxlen=1000)
        witness.calls.append(self._calls.append)

    async def comes(self) -> None:
        """Let time pass until nothing happens any more, as long as that may take, and somebody leads who may."""
        for _ in range(LOOKS):
            if self._rests() and await self._nothing_ends() and self._rests():
                return
            await asyncio.sleep(LOOKED_AT)

    def _rests(self) -> bool:
        quiet = self._recent().total() <= MOST_CALLS and not self._all_rest() and not self._waits_in_vain()
        return quiet and not self._somebody_leaves()

    async def _nothing_ends(self) -> bool:
        """Whether no pod is changed for a while, so that what happened at this very moment was heard of."""
        before = self._versions()
        await asyncio.sleep(HEARD)
        return self._versions() == before

    def _versions(self) -> list[str]:
        return [pod["metadata"]["resourceVersion"] for pod in self._sim.store.list("pods")]

    def _waits_in_vain(self) -> bool:
        """Whether somebody has a watch whose end was not heard: it is begun anew after a while."""
        machines = [each.machine for each in self._sim.replicas if each.service is not None]
        return any(line.closed for machine in machines if machine is not None for line in machine.link.lines)

    def _somebody_leaves(self) -> bool:
        """Whether a pod's grace period goes on, for whose room others may wait."""
        leaving = (pod["metadata"].get("deletionTimestamp") for pod in self._sim.store.list("pods"))
        return any(until is not None and parse_timestamp(until) > self._sim.clock.now() for until in leaving)

    def _all_rest(self) -> bool:
        """Whether nobody leads, since who gave the Lease back for want of lists stands again after a pause."""
        services = [each.service for each in self._sim.replicas if each.service is not None]
        rests = [each.terms.elector.abstains_until > each.clock.monotonic() for each in services]
        return any(rests) and not any(each.terms.elector.is_leader() for each in services)

    def at_rest(self) -> set[str]:
        """All of it; the plugins that are on by the leader's configuration."""
        leaders = [
            (each.machine, each.service)
            for each in self._sim.replicas
            if each.machine is not None and each.service is not None and each.leads
        ]
        if len(leaders) != 1:
            self._sim.violated("one leader", f"{[machine.name for machine, _ in leaders]}")
            return set()
        machine, service = leaders[0]
        plugins = {option.name for tier in service._policy_in_force().tiers for option in tier}
        if self._knows_all(machine, service):
            self._has_done_all(machine, service)
        self._conditions(plugins)
        self._is_quiet(machine)
        self._series(machine, service)
        self._numbers(machine, service)
        return plugins

    # --- state = server -----------------------------------------------------------------------------------------------

    def _knows_all(self, machine: Machine, service: SchedulerService) -> bool:
        state, whole, listed = service.state_writer.state, True, dict[tuple[str, str], bytes]()
        kinds = {kind.name: kind for kind in _kinds(service)}  # what is not read any more stays as it was
        for kind in kinds.values():
            there = self._projected(kind)
            listed |= {(kind.name, key): payload for key, payload in there.items() if payload}
            for problem in _unlike(kind, state.digests.get(kind.name, {}), there):
                self._sim.violated("state is the server's", f"{machine.name}: {problem}")
                whole = False
        for problem in unlike_listed(state, listed, kinds) if whole else ():
            self._sim.violated("state is the server's", f"{machine.name}: {problem}")
            whole = False
        return whole

    def _projected(self, kind: Kind) -> dict[str, bytes]:
        """What the server has of a kind as it is logged, by key; of what cannot be read nothing."""
        found = {}
        try:
            objects = self._sim.store.list(f"{kind.plural}.{kind.group}" if kind.group else kind.plural)
        except StatusError:
            return {}  # not served
        for obj in objects:
            meta = obj["metadata"]
            if not kind.selects(meta.get("namespace", ""), meta["name"]):
                continue
            key = f"{meta['namespace']}/{meta['name']}" if kind.namespaced else meta["name"]
            try:
                _, projected, _ = from_manifest(obj, [kind])
                found[key] = encode_payload(projected)
            except BadObject:
                found[key] = b""
        return found

    # --- all is done, and what is said is so --------------------------------------------------------------------------

    def _has_done_all(self, machine: Machine, service: SchedulerService) -> None:
        state = service.state_writer.state
        limited = limited_groups(self._sim.store.list(GROUPS))
        objects = list(held_back(Truth(self._sim.store, service).manifests(), limited))
        conf = without_it(service._policy_in_force().text).replace(ENTRY, "")
        # who deletes the default queue has none until another replica begins to lead, as in Volcano
        search = Search(objects, conf, state.waiting, makes_default=False, now=self._now_of(service))
        for what in search.left_undone():
            self._sim.violated("all that can be is done", what)
        for what in search.untrue():
            if what.partition(" ")[0] not in limited:
                self._sim.violated("reasons are true", what)
        # the search knows sub-groups, the sessions of the reference do not
        if not any(group["spec"].get("subGroupPolicy") for group in self._sim.store.list(GROUPS)):
            now = datetime.datetime.fromtimestamp(service.clock.wall() / 1e9, datetime.UTC)
            decided = decide(objects, conf, now, service.options.seed, makes_default=False)
            for what in self._work_in(decided):
                self._sim.violated("all that can be is done", what)
        for group, reasons in state.waiting.items():
            for reason in reasons:
                if declared(reason.reason, reason.plugin) is None:
                    self._sim.violated("reasons are declared", f"{group}: {reason}")

    def _work_in(self, decided: Result) -> Iterator[str]:
        """What a session of the slow reference would do."""
        yield from (f"{key} would be bound to {node}" for key, node in decided.binds.items())
        yield from (f"{key} would be evicted" for key in decided.evictions)
        for group in self._sim.store.list(GROUPS):
            key, phase = key_of(group), (group.get("status") or {}).get("phase") or ""
            if decided.phases.get(key, phase) != phase:
                yield f"{key} is {phase or 'new'}, and would be {decided.phases[key]}"

    def _now_of(self, service: SchedulerService) -> datetime.datetime:
        """When it is: all that is waited for has come, but by a clock that is behind (docs/reliability.md)."""
        now = service.clock.wall() / 1e9
        behind = now < EPOCH + self._sim.loop.time() - SteadyClock.JUMP
        return datetime.datetime.fromtimestamp(now, datetime.UTC) if behind else NOW

    def _conditions(self, plugins: set[str]) -> None:
        """No group is called unschedulable whose members are all placed, unless it is over: what is said last stays."""
        if "gang" not in plugins:
            return
        members: dict[str, list[Obj]] = {}
        for pod in self._sim.store.list("pods"):
            members.setdefault(group_of(pod), []).append(pod)
        for group in self._sim.store.list(GROUPS):
            key = key_of(group)
            # failed ones count for no minimum, and where roles have minima nobody here says of which one is missing
            alive = [pod for pod in members.get(key, ()) if pod["status"].get("phase") != "Failed"]
            if len(alive) < len(members.get(key, ())) and group["spec"].get("minTaskMember"):
                continue
            placed = [bool(pod["spec"].get("nodeName")) for pod in alive]
            last = ((group.get("status") or {}).get("conditions") or [{}])[-1]
            whole = placed and all(placed) and len(placed) >= group["spec"].get("minMember", 0)
            over = (group.get("status") or {}).get("phase") == "Completed"
            if whole and not over and (last.get("type"), last.get("status")) == ("Unschedulable", "True"):
                self._sim.violated("reasons are true", f"{key} is called unschedulable, and all of it is placed")

    # --- at rest ------------------------------------------------------------------------------------------------------

    def _recent(self) -> Counter[str]:
        since = self._sim.loop.time() - LOOKED_AT
        recent = [call for call in self._calls if call.at >= since and not call.is_of_lease]
        return Counter(map(str, recent))

    def _is_quiet(self, leader: Machine) -> None:
        calls = self._recent()
        if calls.total() > MOST_CALLS:
            self._sim.violated("at rest", f"{calls.total()} calls in {LOOKED_AT:g} s: {calls.most_common(3)}")
        for replica in self._sim.replicas:
            if (machine := replica.machine) is not None and machine.alive:
                count = sum(not task.done() for task in machine.tasks)
                if count > MOST_TASKS:
                    self._sim.violated("at rest", f"{machine.name} has {count} tasks")

    def _numbers(self, machine: Machine, service: SchedulerService) -> None:
        """Of what pods have in common no more is kept than there are pods."""
        state = service.state_writer.state
        for name, table in vars(state).items():
            if isinstance(table, Interner) and len(table) > len(state.tasks.row_of):
                what = f"{machine.name}: {name} has {len(table)} values for {len(state.tasks.row_of)} pods"
                self._sim.violated("nothing is kept of what is gone", what)

    def _series(self, machine: Machine, service: SchedulerService) -> None:
        found = self._sim.store.list(GROUPS)
        groups = {key_of(each) for each in found}
        # who waits in a queue that is not there is counted under its name
        asked_for = {each["spec"].get("queue", "") for each in found}
        there = {
            "queue": {each["metadata"]["name"] for each in self._sim.store.list(QUEUES)} | asked_for | {""},
            "job": {*groups, *(key.partition("/")[2] for key in groups)},
        }
        shown = set(_SERIES.findall(service.metrics.freeze()().decode()))
        for label, value in sorted(shown):
            known = there["job" if label.startswith("job") else "queue"]
            if value not in known:
                self._sim.violated("no series of what is gone", f"{machine.name}: {label}={value!r}")


def _unlike(kind: Kind, known: dict[str, int], there: dict[str, bytes]) -> Iterator[str]:
    for key in sorted({*there, *known}):
        if key not in known:
            yield f"{kind.name} {key} is not known"
        elif key not in there:
            yield f"{kind.name} {key} is gone"
        elif known[key] != (payload_digest(there[key]) if there[key] else 0):
            yield f"{kind.name} {key} is not as it is known"


def _kinds(service: SchedulerService) -> list[Kind]:
    return [watcher.kind for watcher in service.watches._watchers.values()]
