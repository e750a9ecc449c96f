"""Changes to a workload's cluster: fields set, objects removed, objects added."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any, TypeVar

import msgspec
import yaml
from msgspec.structs import replace

from vcd.model import events as ev
from vcd.model.projection_codec import BadObject, as_plain, decode_payload, encode_payload, from_manifest
from vcd.model.wording import did_you_mean, some
from vcd.scheduling.framework.registry import kinds
from vcd.state.cluster_state import ClusterState
from vcd.timetravel.manifest_reader import read, unreadable, usable_objects
from vcd.timetravel.object_fields import set_field
from vcd.timetravel.whatif.logged_workload import GroupLife, Unit, Workload, name_in_log
from vcd.timetravel.workload_expansion import called, is_workload

_SET = re.compile(
    r"(?P<kind>[A-Za-z]+)/(?P<key>[^=]+?)\.(?P<path>(?:spec|status|metadata|value)\b[^=]*)=(?P<value>.*)", re.DOTALL
)
_STEP = re.compile(r"\.?(?:\[(?P<quoted>[^\]]+)\]|(?P<plain>[^.\[\]]+))")
_LOST_KINDS = ("Pod", "PodGroup")

Lived = TypeVar("Lived", Unit, GroupLife)


class EditError(ValueError):
    """A change that cannot be made; the message states which one, why, and how to write it."""


class Assignment(msgspec.Struct, frozen=True):
    """One field of one object: ``queue/a.spec.weight=4``. ``text`` is the user's input."""

    text: str
    kind: str
    key: str
    path: tuple[str, ...]
    value: Any


class Edits(msgspec.Struct, frozen=True):
    """The changes: fields set, objects removed (kind, key), objects added at the beginning.

    ``refused`` and ``unknown`` state what is refused or not understood in the manifests of added objects.
    """

    fields: tuple[Assignment, ...] = ()
    without: tuple[tuple[str, str], ...] = ()
    added: tuple[ev.ObjectPut, ...] = ()
    refused: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.fields or self.without or self.added)

    @property
    def words(self) -> str:
        """The changes in a few words."""
        parts = [assignment.text for assignment in self.fields]
        parts += [f"without {kind.lower()}/{key}" for kind, key in self.without]
        return ", ".join([*parts, *([f"{len(self.added)} objects added"] if self.added else [])])


def read_edits(fields: Iterable[str] = (), without: Iterable[str] = (), added: Sequence[Any] = ()) -> Edits:
    """Parse edits in the form of the command line, with manifests of added objects. Raises EditError."""
    edits = Edits(tuple(map(_assignment, fields)), tuple(map(_parse_object_name, without)))
    return _with_added(edits, added) if added else edits


def _with_added(edits: Edits, manifests: Sequence[Any]) -> Edits:
    """Add the objects of manifests. Raises EditError if none of them can be added."""
    try:
        reading = read(manifests, {"Namespace": None}, to_create=True)
    except BadObject as error:
        raise EditError(f"the objects to add cannot be read: {error}") from error
    work = [each for each in reading.objects if is_workload(each) or each["kind"] in _LOST_KINDS]
    reading.objects = [each for each in reading.objects if each not in work]
    added = tuple(ev.ObjectPut(kind, obj.key, "", encode_payload(obj)) for kind, obj in usable_objects(reading))
    if work:
        names = some([called(each) for each in work])
        reading.refusals.append(f"workloads cannot be added to the cluster: {names}; forecast them with --submit")
    if not added:
        raise EditError(
            "; ".join([*reading.refused(), *reading.unknown, "none of the objects to add is of a kind that vcd reads"])
        )
    return replace(edits, added=added, refused=tuple(reading.refused()), unknown=tuple(reading.unknown))


def _assignment(text: str) -> Assignment:
    found = _SET.fullmatch(text)
    if found is None:
        raise EditError(
            f"{text!r} is not a change of a field: write it like queue/a.spec.weight=4, a key with dots in brackets:"
            " queue/a.metadata.annotations[volcano.sh/card.quota]='{\"A100\": 8}'"
        )
    try:
        value = yaml.safe_load(found["value"])
    except (yaml.YAMLError, ValueError, RecursionError) as error:  # PyYAML raises all of them
        raise EditError(f"{text!r}: the value is not YAML: {error}") from error
    path = tuple(step["quoted"] or step["plain"] for step in _STEP.finditer(found["path"]))
    if "annotations" in path[-2:-1] or "labels" in path[-2:-1]:
        value = found["value"]  # strings, even if they look like other YAML types
    return Assignment(text, _kind(found["kind"], text), found["key"], path, value)


def _parse_object_name(text: str) -> tuple[str, str]:
    kind, slash, key = text.partition("/")
    if not (slash and key):
        raise EditError(f"{text!r} names no object; write it like node/gpu-7")
    return _kind(kind, text), key


def _kind(name: str, text: str) -> str:
    known = {kind.lower(): kind for kind in kinds()}
    if name.lower() not in known:
        raise EditError(f"{text!r}: {name} is not a kind that vcd reads; choose one of {', '.join(sorted(known))}")
    return known[name.lower()]


# --- applying edits ---------------------------------------------------------------------------------------------------


def edited(work: Workload, edits: Edits) -> Workload:
    """Return a changed workload. Raises EditError for an unknown object, or a refused change."""
    for kind, key in edits.without:
        _check_known(work, kind, key)
    gone = frozenset(edits.without)
    result = replace(
        work,
        groups={key: life for key, life in work.groups.items() if ("PodGroup", name_in_log(key)) not in gone},
        units=[unit for unit in work.units if not gone & _names(unit)],
        base=[event for event in work.base if not _is_of(event, gone)],
        changes=[(time, event) for time, event in work.changes if not _is_of(event, gone)],
    )
    for assignment in edits.fields:
        _check_known(work, assignment.kind, assignment.key)
        changed = _apply_assignment(result, assignment)
        if changed == result:
            raise EditError(
                f"{assignment.text!r} changes nothing: the field has that value already, or no scheduler reads it"
            )
        result = changed
    return replace(result, base=[*result.base, *edits.added])


def _apply_assignment(work: Workload, assignment: Assignment) -> Workload:
    if assignment.kind == "PodGroup":
        groups = {
            key: _with_field(life, "group", "PodGroup", assignment) if name_in_log(key) == assignment.key else life
            for key, life in work.groups.items()
        }
        return replace(work, groups=groups)
    if assignment.kind == "Pod":
        units = [
            _with_field(unit, "pod", "Pod", assignment) if name_in_log(unit.key) == assignment.key else unit
            for unit in work.units
        ]
        return replace(work, units=units)
    return replace(
        work,
        base=[_with(event, assignment) for event in work.base],
        changes=[(time, _with(event, assignment)) for time, event in work.changes],
    )


def _with_field(lived: Lived, field: str, kind: str, assignment: Assignment) -> Lived:
    """Return a pod or group with one field set, also in its later versions."""
    versions = [(after, _set(obj, kind, assignment)) for after, obj in lived.versions]
    return replace(lived, versions=versions, **{field: _set(getattr(lived, field), kind, assignment)})


def _names(unit: Unit) -> set[tuple[str, str]]:
    return {("Pod", name_in_log(unit.key)), ("PodGroup", name_in_log(unit.group))}


def _check_known(work: Workload, kind: str, key: str) -> None:
    if kind == "PodGroup":
        known = set(map(name_in_log, work.groups))
    elif kind == "Pod":
        known = {name_in_log(unit.key) for unit in work.units}
    else:
        events = (*work.base, *(event for _, event in work.changes))
        known = {event.key for event in events if isinstance(event, ev.ObjectPut) and event.kind == kind}
    if key not in known:
        near, there = did_you_mean(key, sorted(known)), some(sorted(known), 10) or "none"
        raise EditError(f"there is no {kind} {key} in the log{near}; there are {there}")


def _is_of(event: ev.Event, gone: frozenset[tuple[str, str]]) -> bool:
    return isinstance(event, ev.ObjectPut | ev.ObjectGone | ev.ObjectBad) and (event.kind, event.key) in gone


def _with(event: ev.Event, assignment: Assignment) -> ev.Event:
    if not isinstance(event, ev.ObjectPut) or event.payload is None:
        return event
    if (event.kind, event.key) != (assignment.kind, assignment.key):
        return event
    try:
        changed = _set(decode_payload(event.kind, event.payload), event.kind, assignment)
    except BadObject as error:
        raise EditError(f"{assignment.text!r}: {error}") from error
    return ev.ObjectPut(event.kind, event.key, "", encode_payload(changed))


def _set(obj: Any, kind: str, assignment: Assignment) -> Any:
    """Return the object with one field set; missing maps on the path are created. Raises BadObject."""
    manifest: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(as_plain(obj)))
    try:
        set_field(manifest, assignment.path, assignment.value)
    except ValueError as error:
        raise EditError(f"{assignment.text!r}: {error} holds no fields that could be set") from error
    changed = from_manifest({**manifest, "kind": kinds()[kind].manifest_kind}, (kinds()[kind],))[1]
    if changed.key != obj.key:
        raise EditError(
            f"{assignment.text!r}: this would make it another object; remove this one by --without and add the other "
            "one by --add"
        )
    why = unreadable(kind, changed, ClusterState())
    if why and not unreadable(kind, obj, ClusterState()):
        raise EditError(f"{assignment.text!r}: {why}")
    return changed
