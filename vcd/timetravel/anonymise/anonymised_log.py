"""Write an anonymised log: observations are renamed, and sessions are decided again.

The row of a session is not renamed but computed, by deciding on the renamed state with the renamed configuration. So
its replay succeeds by construction, and its sentences contain no old name. Since new names compare like the old ones,
the decision is the same: the same pods, renamed, on the same nodes. If this version decides a session differently
(``vcd replay`` of the original log shows that), its row is renamed after all, so that later events still follow from
it.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import msgspec

from vcd import eventlog
from vcd.eventlog import Logged, LogReader
from vcd.eventlog.log_verification import Fold
from vcd.model import events as ev
from vcd.model.installation_faults import FAULTS, NAMESPACE
from vcd.model.projection_codec import payload_digest
from vcd.model.reasons import Reason
from vcd.scheduling.decide import decide, versions
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.search.candidates import Memory
from vcd.scheduling.session.outside import OneByOne, Question, Recorder, Reply
from vcd.state.backoff import RefusalBackoff
from vcd.state.checkpoint import Dump, decoded
from vcd.state.cluster_state import ClusterState
from vcd.state.grouptable import GroupTable
from vcd.state.immunity import Dumped as Lost
from vcd.state.podtable import PodTable
from vcd.state.snapshot import Snapshot, SnapshotMaker
from vcd.state.turns_taken import TurnsTaken
from vcd.timetravel.anonymise.object_rewriter import Rewriter
from vcd.timetravel.anonymise.replacement_names import Words

_SET_ASIDE = "it cannot be read"
_NO_LONGER = "it no longer held"
_LEFT_OUT = "left out"


class Anonymised(msgspec.Struct, frozen=True):
    """The new file: its first and last event, the number of its sessions, and the sessions whose rows were renamed,
    since this version decides them differently."""

    first: int
    last: int
    sessions: int
    renamed: list[int]


def anonymised(
    path: str | Path, out: str | Path, fold: Fold, first: int | None = None, last: int | None = None
) -> Anonymised:
    """Write the sessions ``first`` to ``last`` of a log, and the events that their replay needs, to an anonymised
    file.

    Raises LogError as ``eventlog.export`` does.
    """
    with tempfile.TemporaryDirectory(dir=Path(out).resolve().parent) as folder:
        stretch = Path(folder) / "stretch"
        eventlog.export(path, stretch, fold, first, last)
        with LogReader(stretch) as reader:
            return _LogRewriter(reader).write(Path(out))


class _RecordedReplies(OneByOne):
    """Answers external questions from the record, in order."""

    def __init__(self, replies: Sequence[Reply]) -> None:
        self._replies = iter(replies)

    def ask(self, question: Question) -> Reply:
        return next(self._replies, Reply(error="not asked then"))


class _LogRewriter:
    """The rewriting of one log."""

    def __init__(self, reader: LogReader) -> None:
        self._reader = reader
        self._words = Words()
        self._to = Rewriter(self._words)
        self._policies: dict[str, Policy] = {}
        self._texts: dict[tuple[str, str], str] = {}
        """New messages of conditions that sessions wrote, by group and old message."""
        self._memory = Memory()
        self._renamed: list[int] = []
        self._heads = {info.head for info in reader.sessions()}
        self._snapshots: dict[int, Snapshot] = {}
        checkpoints = reader.checkpoints()
        begins = checkpoints and checkpoints[0].sequence < (reader.first() or 0)
        self._base = checkpoints[0] if begins else None
        self._checkpoint_times = {info.sequence: info.time for info in checkpoints if info is not self._base}

    def write(self, out: Path) -> Anonymised:
        """Collect the words, then write everything with new ones."""
        self._collect()
        state, base = ClusterState(), None
        if self._base is not None:
            state = ClusterState.of(self._dump(decoded(self._state_at(self._base.sequence))))
            base = (self._base.sequence, self._base.time, state.dump())
        self._state, self._maker = state, SnapshotMaker(state)
        self._note_head()
        known = [(self._policies[digest].digest, self._policies[digest].text) for digest in sorted(self._policies)]
        checkpoints: list[tuple[int, int, bytes]] = []
        written = eventlog.write_new_log(out, base, dict(known).items(), self._events(checkpoints), checkpoints)
        return Anonymised(written.first, written.last, written.sessions, self._renamed)

    def _state_at(self, sequence: int) -> bytes:
        return self._reader.base(sequence).state

    def _collect(self) -> None:
        nodes: set[str] = set()
        seeds: set[int] = set()
        texts = {digest: text for digest, text, _ in self._reader.rows("policies")}
        for text in texts.values():
            self._to.policy(text)
        if self._base is not None:
            dump = self._dump(decoded(self._state_at(self._base.sequence)))
            nodes.update(key for kind, key, _, _ in dump.every_object() if kind == "Node")
        for logged in self._reader.read(0 if self._base is None else self._base.sequence):
            event = logged.event
            if isinstance(event, ev.SessionDecided):
                self._plan(event.accepted())
                seeds.add(event.seed)
            else:
                self._event(event)
            if isinstance(event, ev.ObjectPut) and event.kind == "Node":
                nodes.add(event.key)
        self._to.collecting = False
        self._words.settle(seeds, nodes)
        self._policies = {digest: self._to.policy(text) for digest, text in texts.items()}

    # --- the pass that writes -----------------------------------------------------------------------------------------

    def _events(self, checkpoints: list[tuple[int, int, bytes]]) -> Iterator[Logged]:
        for logged in self._reader.read(self._state.sequence):
            event = logged.event
            changed = self._session(event) if isinstance(event, ev.SessionDecided) else self._event(event)
            self._state.apply(logged.sequence, changed)
            self._note_head()
            if logged.sequence in self._checkpoint_times:
                checkpoints.append((logged.sequence, self._checkpoint_times[logged.sequence], self._state.dump()))
            yield Logged(logged.sequence, logged.time, changed)

    def _note_head(self) -> None:
        """Store the snapshot if a later session was decided from it."""
        if self._state.sequence in self._heads:
            self._snapshots[self._state.sequence] = self._maker.snapshot()

    def _session(self, record: ev.SessionDecided) -> ev.SessionDecided:
        """Decide a session again, from the renamed state."""
        snapshot = self._snapshots.pop(record.head)
        policy = self._policies[record.policy]
        replies = [Reply(self._to.answer(one.answer), "no answer" if one.error else "") for one in record.asked]
        recorder = Recorder(_RecordedReplies(replies))
        interrupted = tuple(map(_fault, record.interrupted))
        plan = decide(
            snapshot, policy, record.now, record.seed, self._memory, outside=recorder, interrupted=interrupted
        )
        before = ev.decode_plan(record.plan)
        if _operations_of(plan) == _operations_of(self._plan(before)):
            self._note_messages(before, plan)
        else:
            self._renamed.append(record.session)
            plan = self._plan(before)
        return msgspec.structs.replace(
            record,
            policy=policy.digest,
            versions={name: record.versions.get(name, version) for name, version in versions().items()},
            plan=ev.encode_plan(plan),
            stale=tuple((number, _NO_LONGER) for number, _ in record.stale),
            asked=recorder.asked,
            interrupted=interrupted,
        )

    def _note_messages(self, before: ev.Plan, after: ev.Plan) -> None:
        new = {status.key: status.condition for status in after.groups}
        for status in before.groups:
            condition = new.get(self._to.key("PodGroup", status.key))
            if status.condition is not None and condition is not None:
                self._texts[status.key, status.condition[3]] = condition[3]

    # --- events -------------------------------------------------------------------------------------------------------

    def _event(self, event: ev.Event) -> ev.Event:
        """Return an event other than a session, renamed."""
        match event:
            case ev.ObjectPut():
                return self._rewrite_object(event)
            case ev.ObjectGone():
                return ev.ObjectGone(event.kind, self._to.key(event.kind, event.key), event.resource_version)
            case ev.ObjectBad():
                return self._unreadable(event)
            case ev.PolicyLoaded():
                return self._rewrite_policy(event)
            case ev.LeadershipChanged():
                return msgspec.structs.replace(event, identity=self._words(event.identity, "replica"))
            case ev.Answered():
                return ev.Answered(event.question, self._to.answer(event.answer))
            case ev.PluginLate():
                return msgspec.structs.replace(event, fault=_fault(event.fault))
            case ev.ForeignBound():
                key, node = self._to.key("Pod", event.key), self._to.key("Node", event.node)
                return ev.ForeignBound(key, self._words(event.uid, "uid"), node, event.until)
            case ev.InstallationFault():
                return self._installation_fault(event)
            case ev.OperationDone():
                return msgspec.structs.replace(event, detail="")
        return event

    def _rewrite_object(self, event: ev.ObjectPut) -> ev.Event:
        key = self._to.key(event.kind, event.key)
        if event.payload is None:
            return ev.ObjectPut(event.kind, key, event.resource_version, None)
        payload = self._payload(event.kind, event.key, event.payload)
        return (
            self._unreadable(event)
            if payload is None
            else ev.ObjectPut(event.kind, key, event.resource_version, payload)
        )

    def _payload(self, kind: str, key: str, payload: bytes) -> bytes | None:
        return self._to.payload(kind, payload, self._messages(key) if kind == "PodGroup" else lambda _: "")

    def _messages(self, group: str) -> Callable[[str], str]:
        return lambda text: self._texts.get((group, text), "")

    def _unreadable(self, event: ev.ObjectPut | ev.ObjectBad) -> ev.ObjectBad:
        return ev.ObjectBad(event.kind, self._to.key(event.kind, event.key), event.resource_version, _SET_ASIDE)

    def _rewrite_policy(self, event: ev.PolicyLoaded) -> ev.PolicyLoaded:
        settings = self._to.settings(event.settings)
        if self._to.collecting:
            self._to.policy(event.text)
            return event
        policy = self._policies.get(event.digest) or self._to.policy(event.text)
        self._policies[event.digest] = policy
        return ev.PolicyLoaded(policy.digest, policy.text, settings)

    # --- plans --------------------------------------------------------------------------------------------------------

    def _plan(self, plan: ev.Plan) -> ev.Plan:
        """Return a plan, renamed and without sentences."""
        return ev.Plan(
            statements=tuple(
                ev.Statement(
                    self._group(one.group),
                    one.action,
                    tuple(self._operation(operation) for operation in one.operations),
                )
                for one in plan.statements
            ),
            groups=tuple(self._status(status) for status in plan.groups),
            queues=tuple(ev.QueueUsage(self._to.key("Queue", one.name), one.allocated) for one in plan.queues),
            waiting=tuple(self._waiting(one) for one in plan.waiting),
            faults=tuple(map(_fault, plan.faults)),
            more=plan.more,
            rounds=plan.rounds,
            lapsed=tuple(map(self._group, plan.lapsed)),
            turns=tuple(map(self._turn, plan.turns)),
        )

    def _turn(self, turn: ev.Turn) -> ev.Turn:
        namespace = self._words(turn.namespace, "namespace")
        return ev.Turn(namespace, turn.priority, turn.created, self._group(turn.group))

    def _turns_taken(self, taken: TurnsTaken) -> TurnsTaken:
        return TurnsTaken(self._turn(taken.last), taken.is_news)

    def _group(self, key: str) -> str:
        return self._to.key("PodGroup", key) if key else ""

    def _pod(self, key: str) -> str:
        return self._to.key("Pod", key)

    def _operation(self, one: ev.Operation) -> ev.Operation:
        return ev.Operation(
            one.verb,
            self._pod(one.key),
            self._words(one.uid, "uid"),
            self._words(one.node, "node"),
            "",
            tuple(map(self._choice, one.volumes)),
            {key: self._to.text(text) for key, text in one.annotations.items()},
        )

    def _choice(self, one: ev.VolumeChoice) -> ev.VolumeChoice:
        claim = self._to.key("PersistentVolumeClaim", one.claim)
        return ev.VolumeChoice(claim, self._words(one.volume, "volume"), self._words(one.uid, "uid"))

    def _status(self, one: ev.GroupStatus) -> ev.GroupStatus:
        condition = one.condition
        if condition is not None:
            condition = (*condition[:3], self._texts.get((one.key, condition[3]), ""))
        return msgspec.structs.replace(one, key=self._group(one.key), condition=condition)

    def _waiting(self, one: ev.Waiting) -> ev.Waiting:
        reason = one.reason
        if isinstance(reason, Reason):
            names = tuple((role, self._to.text(text)) for role, text in reason.names)
            reason = msgspec.structs.replace(reason, names=names)
        return msgspec.structs.replace(
            one,
            group=self._group(one.group),
            reason="" if isinstance(reason, str) else reason,
            pods=tuple(map(self._pod, one.pods)),
            detail={},
        )

    def _backoff(self, backoff: RefusalBackoff) -> RefusalBackoff:
        return msgspec.structs.replace(
            backoff,
            uid=self._words(backoff.uid, "uid"),
            message="",
            preemptor=self._group(backoff.preemptor),
            nodes=tuple([self._words(node, "node") for node in backoff.nodes]),
        )

    # --- checkpoints --------------------------------------------------------------------------------------------------

    def _dump(self, dump: Dump) -> Dump:
        """Return a state, renamed."""
        pods, groups, to = self._pod, self._group, self._to
        objects, bad = [], [(kind, to.key(kind, key), _SET_ASIDE) for kind, key, _ in dump.bad]
        for kind, key, payload, digest in dump.every_object():
            changed = self._payload(kind, key, payload) or b"" if payload else b""
            objects.append((kind, to.key(kind, key), changed, payload_digest(changed) if digest and changed else 0))
        own: dict[str, Any] = {
            "policy": None if dump.policy is None else self._event(dump.policy),
            "bad": sorted(bad),
            "answers": {question: to.answer(answer) for question, answer in dump.answers.items()},
            "objects": sorted(objects, key=lambda one: one[:2]),
            "pods": PodTable(),
            "groups": GroupTable(),
            "intents": {
                pods(key): (*at[:4], self._words(at[4], "uid"), self._words(at[5], "node"))
                for key, at in dump.intents.items()
            },
            "intended_status": {groups(key): self._status(one) for key, one in dump.intended_status.items()},
            "waiting": {groups(key): tuple(map(self._waiting, of)) for key, of in dump.waiting.items()},
            "stranded": {groups(key): since for key, since in dump.stranded.items()},
            "backoffs": {pods(key): self._backoff(one) for key, one in dump.backoffs.items()},
            "admissions": {groups(key): one for key, one in dump.admissions.items()},
            "released": {groups(key): self._backoff(one) for key, one in dump.released.items()},
            "intended_volumes": {pods(key): tuple(map(self._choice, of)) for key, of in dump.intended_volumes.items()},
            "intended_annotations": {
                pods(key): {name: to.text(text) for name, text in of.items()}
                for key, of in dump.intended_annotations.items()
            },
            "nominated": {pods(key): self._words(node, "node") for key, node in dump.nominated.items()},
            "nomination_turns": {
                pods(key): (self._words(node, "node"), turn) for key, (node, turn) in dump.nomination_turns.items()
            },
            "evicted": {groups(key): tuple(map(self._uids, of)) for key, of in dump.evicted.items()},
            "immunity": {groups(key): self._rename_losses(*of) for key, of in dump.immunity.items()},
            "inputs": (dump.inputs[0], {groups(key): number for key, number in dump.inputs[1].items()}),
            "older": {
                groups(key): {groups(owner): self._uids(uids) for owner, uids in of.items()}
                for key, of in dump.older.items()
            },
            "former": {groups(key): self._words(queue, "queue") for key, queue in dump.former.items()},
            "late": {name: self._event(one) for name, one in dump.late.items()},
            "faults": {one.key: one for one in map(self._installation_fault, dump.faults.values())},
            "held_namespaces": {self._words(name, "namespace"): until for name, until in dump.held_namespaces.items()},
            "turns": {taken.last.namespace: taken for taken in map(self._turns_taken, dump.turns.values())},
        }
        return msgspec.structs.replace(dump, **own)

    def _installation_fault(self, fault: ev.InstallationFault) -> ev.InstallationFault:
        named = fault.code in FAULTS and FAULTS[fault.code].subject != NAMESPACE
        subject = fault.subject if named else self._words(fault.subject, "namespace")
        return ev.InstallationFault(fault.code, subject, fault.message and _LEFT_OUT)

    def _rename_losses(self, losses: dict[str, tuple[str, ...]], known: Sequence[str], undisturbed: bool) -> Lost:
        renamed = {self._group(owner): self._uids(uids) for owner, uids in losses.items()}
        return renamed, self._uids(known), undisturbed

    def _uids(self, uids: Sequence[str]) -> tuple[str, ...]:
        return tuple(sorted(self._words(uid, "uid") for uid in uids))


def _fault(text: str) -> str:
    """Return a fault with the name of the failed plugin, but without its message."""
    return f"{text.partition(':')[0]}: {_LEFT_OUT}"


def _operations_of(plan: ev.Plan) -> Any:
    return [
        (one.group, one.action, [(each.verb, each.key, each.uid, each.node) for each in one.operations])
        for one in plan.statements
    ]
