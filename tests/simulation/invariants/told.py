"""Who waits is told so, each pod by its condition, which autoscalers look at; and who does not wait is not."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

from tests.e2e.cluster import GROUPS
from tests.simulation.invariants.decisions import Decisions
from tests.simulation.invariants.holds import with_remarks
from tests.simulation.invariants.witness import Witness
from tests.simulation.replica import Machine
from vcd.daemon.service import SchedulerService
from vcd.embedded.controllers.pod_properties import condition_of
from vcd.kube.event_recorder import COMBINED, MESSAGE_LIMIT
from vcd.model import events as ev
from vcd.model.controllers import GROUP_NAME
from vcd.scheduling.framework.declared_reasons import cause_of
from vcd.text.causes import for_namespace, said, shortened
from vcd.text.condition_texts import OWN, sentence_of
from vcd.text.reason_sentences import reason_for_namespace

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation


Obj = dict[str, Any]
_OF_WAITS = ("FailedScheduling", "Unschedulable")
"""The reasons of Events that tell why a pod or a group waits."""
_WRITTEN = 1.0
"""Seconds in which the condition that a program has decided on is written."""
_LATELY = 20.0
"""Seconds in which a session may be told of that did not see a pod in its group yet."""


class Told:
    """Looks at groups as replicas write them, and at the pods on the server once all has come to rest."""

    def __init__(self, sim: Simulation, witness: Witness, decisions: Decisions) -> None:
        self._sim, self._witness = sim, witness
        self._scheduled: set[str] = set()
        """The groups that are called scheduled."""
        self._stated: set[str] = set()
        """All that sessions found and replicas diagnosed of groups that wait."""
        self._group_of: dict[str, str] = {}
        self._moved: dict[str, float] = {}
        """When a pod was last moved to a group."""
        decisions.looks.append(self._decided)
        witness.services.append(self._begun)
        sim.store.subscribe([GROUPS], self._group)
        sim.store.subscribe(["pods"], self._pod)
        sim.store.subscribe(["events"], self._event)

    def _begun(self, _: Machine, service: SchedulerService) -> None:
        report = service.verdicts.report
        service.verdicts.report = lambda group, message, first: self._diagnosed(report, group, message, first)

    def _decided(self, _: Machine, __: SchedulerService, event: ev.SessionDecided) -> None:
        for reasons in ev.waits_by_group(event.accepted().waiting).values():
            self._stated.add(_joined([each for each in reasons if each.gate != "gang"] or reasons))

    def _diagnosed(self, show: Callable[[str, str, bool], None], group: str, message: str, first: bool) -> None:
        self._stated.add(sentence_of(message))
        show(group, message, first)

    def _event(self, event: str, _: str, obj: Obj) -> None:
        if event == "DELETED" or self._witness.asking is None or obj.get("reason") not in _OF_WAITS:
            return
        message = obj["message"].removeprefix(COMBINED)
        if message.partition(OWN)[0] not in self._stated and len(message) < MESSAGE_LIMIT:
            subject = obj["involvedObject"]
            self._sim.violated("reasons are true", f"an Event of {subject['name']}, of no diagnosis: {message!r}")

    def _pod(self, _: str, __: str, obj: Obj) -> None:
        group = _group_of(obj)
        if self._group_of.setdefault(obj["metadata"]["uid"], group) != group:
            self._group_of[obj["metadata"]["uid"]] = group
            self._moved[group] = self._sim.loop.time()

    def _group(self, event: str, _: str, obj: Obj) -> None:
        key, last = _key(obj), ((obj.get("status") or {}).get("conditions") or [{}])[-1]
        held = last.get("status") == "True"
        if event == "DELETED" or not (held and last.get("type") == "Scheduled"):
            is_turned = key in self._scheduled and held and last.get("type") == "Unschedulable"
            if is_turned and event != "DELETED" and self._witness.asking is not None and self._is_placed(key, obj):
                self._sim.violated("reasons are true", f"{key} is called unschedulable as all of it is placed")
            self._scheduled.discard(key)
        else:
            self._scheduled.add(key)

    def _is_placed(self, key: str, obj: Obj) -> bool:
        """Whether all pods of a group have nodes, as many as it needs, none has ended, and none came to it lately."""
        if self._sim.loop.time() - self._moved.get(key, -_LATELY) < _LATELY:
            return False
        pods = [pod for pod in self._sim.store.list("pods") if _group_of(pod) == key]
        running = [pod["status"].get("phase") in ("Pending", "Running") and pod["spec"].get("nodeName") for pod in pods]
        return all(running) and len(running) >= obj["spec"].get("minMember", 1)

    def at_rest(self) -> None:
        """Each pod of a group that waits, by the leader's state, has a condition that says why, and the group has."""
        for replica in self._sim.replicas:
            if replica.service is not None and replica.leads:
                for pod in self._sim.store.list("pods"):
                    self._pod_is_told(replica.service, pod)
                for group in self._sim.store.list(GROUPS):
                    self._group_is_told(replica.service, group)

    def _pod_is_told(self, service: SchedulerService, pod: Obj) -> None:
        group, key = _group_of(pod), _key(pod)
        reasons = service.state_writer.state.waiting.get(group, ())
        # where the queue is not there only the group is told, as in Volcano, which looks at no pod of it
        has_queue = all(each.reason.code != "queue-missing" for each in reasons)
        if not (reasons and has_queue and _waits(pod)):
            return
        known = service.verdicts._known.get(group)
        if known is not None and service.clock.monotonic() - known.reported_at < _WRITTEN:
            return
        told = condition_of(pod, "PodScheduled")
        if told is None:
            self._sim.violated("who waits is told", f"{key} waits with {group}, and has no condition that says so")
            return
        own = [_in_words(each, reasons) for each in reasons if key in each.pods][:1]
        nominated = pod["status"].get("nominatedNodeName")
        room = [f"waits for capacity that evictions free on node {nominated}"] if nominated else []
        sentence = service.status_reporter._sentences.get(group)
        message, why = told.get("message", ""), [sentence] if sentence else [*own, _joined(reasons), *self._stated]
        if told["status"] != "False" or message.partition(OWN)[0] not in [*why, *room]:
            self._sim.violated("reasons are true", f"{key} says {told['status']}, {message!r}, and not {why}")

    def _group_is_told(self, service: SchedulerService, group: Obj) -> None:
        key, last = _key(group), ((group.get("status") or {}).get("conditions") or [{}])[-1]
        reasons = service.state_writer.state.waiting.get(key, ())
        if not reasons or (last.get("type"), last.get("status")) != ("Unschedulable", "True"):
            return
        known = service.verdicts._known.get(key)
        if known is None or known.reported is None:  # by what held longest before this program began
            return
        if service.clock.monotonic() - known.reported_at < _WRITTEN:
            return
        # other figures are told after a while
        held = known.reported.message if key in service.verdicts._delayed else ""
        whole = _joined([each for each in reasons if each.gate != "gang"] or reasons)
        namespace = key.partition("/")[0]
        verdicts = [
            with_remarks(shortened(said(for_namespace(each, namespace))), each.cause, reasons)
            for each in known.diagnoses.values()
        ]
        why = [whole, sentence_of(held), *verdicts]
        words = sentence_of(last.get("message", ""))
        if words not in why:
            self._sim.violated("reasons are true", f"{key} says {words!r}, and not {why}")


def _in_words(reason: ev.Waiting, reasons: Iterable[ev.Waiting]) -> str:
    """A reason of a pod, as one among those of its group, with the remarks on holds that follow it."""
    return with_remarks(reason_for_namespace(reason), cause_of(reason), reasons)


def _joined(reasons: Iterable[ev.Waiting]) -> str:
    return "; ".join(map(reason_for_namespace, reasons))


def _key(obj: Obj) -> str:
    return f"{obj['metadata']['namespace']}/{obj['metadata']['name']}"


def _group_of(pod: Obj) -> str:
    return f"{pod['metadata']['namespace']}/{(pod['metadata'].get('annotations') or {}).get(GROUP_NAME)}"


def _waits(pod: Obj) -> bool:
    """Whether it is up to a scheduler of ours that it does; of one with gates the API server tells."""
    spec, ours = pod["spec"], pod["spec"].get("schedulerName") == "volcano"
    there = not spec.get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    return ours and there and not spec.get("schedulingGates") and pod["status"].get("phase", "Pending") == "Pending"
