"""Field management: field sets in the API's ``FieldsV1`` form, operations on them, and server-side apply.

A set is a nested dict as in ``metadata.managedFields[].fieldsV1``. ``{}`` is a field that is itself a member,
``{"f:a": ...}`` a field with members below it, ``{".": {}, "f:a": ...}`` both. ``f:`` names a field, ``k:`` a list item
by its keys, ``v:`` an item of a set by its value.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

import msgspec

from vcd.embedded.schema import ANY, ANYTHING, ARRAY, OBJECT, Schema
from vcd.embedded.status_errors import StatusError

FieldSet = dict[str, Any]
Managers = list[dict[str, Any]]

SELF: Final = "."
_SERVER_METADATA: Final = (
    "f:name", "f:namespace", "f:uid", "f:resourceVersion", "f:generation", "f:creationTimestamp", "f:selfLink",
    "f:deletionTimestamp", "f:deletionGracePeriodSeconds", "f:managedFields",
)  # fmt: skip
# Default values of list keys that an item may omit.
_KEY_DEFAULTS: Final = {"protocol": "TCP"}
_encode_sorted: Final = msgspec.json.Encoder(order="sorted").encode


# --- sets -----------------------------------------------------------------------------------------------------------


def member(node: FieldSet) -> bool:
    """Return whether the field itself is in the set, independent of fields below it."""
    return not node or SELF in node


def union(left: FieldSet, right: FieldSet) -> FieldSet:
    """Return the fields in one or both sets."""
    if left == right:
        return left
    result = dict(left)
    for key, part in right.items():
        if key != SELF:
            result[key] = union(result[key], part) if key in result else part
    return _with_self(result, member(left) or member(right))


def subtract(left: FieldSet, right: FieldSet) -> FieldSet | None:
    """Return the fields of ``left`` that are not in ``right``; None if there are none."""
    parts = ((key, part if key not in right else subtract(part, right[key])) for key, part in left.items())
    return _made_of(parts, member(left) and not member(right))


def intersect(left: FieldSet, right: FieldSet) -> FieldSet | None:
    """Return the fields in both sets; None if there are none."""
    parts = ((key, intersect(part, right[key])) for key, part in left.items() if key in right)
    return _made_of(parts, member(left) and member(right))


def _made_of(parts: Iterable[tuple[str, FieldSet | None]], itself: bool) -> FieldSet | None:
    """Return a set of the parts that are not None; None if there are none and the field is no member itself."""
    kept = {key: part for key, part in parts if key != SELF and part is not None}
    return _with_self(kept, itself) if kept or itself else None


def _with_self(parts: FieldSet, itself: bool) -> FieldSet:
    children = {key: part for key, part in parts.items() if key != SELF}
    if not children:
        return {}
    return {SELF: {}, **children} if itself else children


def leaves(node: FieldSet, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of the members as tuples of ``f:``/``k:``/``v:`` parts, in the set's order."""
    if member(node) and path:
        yield path
    for key, part in node.items():
        if key != SELF:
            yield from leaves(part, (*path, key))


# --- values ---------------------------------------------------------------------------------------------------------


def item_key(item: Any, schema: Schema) -> str:
    """Return the ``k:`` or ``v:`` part that names a list item."""
    if schema.keys and isinstance(item, dict):
        named = {key: item.get(key, _KEY_DEFAULTS.get(key)) for key in schema.keys}
        return "k:" + _encode_sorted({key: value for key, value in named.items() if value is not None}).decode()
    return "v:" + _encode_sorted(item).decode()


def parts_of(value: Any, schema: Schema) -> list[tuple[str, Any, Schema]] | None:
    """Return (part, value, schema) for each field or item of a value; None if it is a scalar or atomic."""
    if schema.type == ANY and type(value) is dict and not schema.atomic:
        return [(f"f:{key}", part, ANYTHING) for key, part in value.items()]
    if schema.atomic:
        return None
    if schema.type == OBJECT and type(value) is dict:
        known, values = schema.properties, schema.values or ANYTHING
        return [(f"f:{key}", part, known.get(key, values)) for key, part in value.items() if part is not None or known]
    if schema.type == ARRAY and type(value) is list:
        items = schema.items or ANYTHING
        return [(item_key(item, schema), item, items if schema.keys else ANYTHING) for item in value]
    return None


def set_of(value: Any, schema: Schema) -> FieldSet:
    """Return the set of all fields of a value."""
    parts = parts_of(value, schema)
    if not parts:
        return {}
    return {SELF: {}, **{key: set_of(part, below) for key, part, below in parts}}


def applied_set(value: Any, schema: Schema) -> FieldSet:
    """Return the set that an apply of a value claims: leaves and list items, but not the objects that contain them."""
    parts = parts_of(value, schema)
    if not parts:
        return {}
    named = {key: applied_set(part, below) for key, part, below in parts}
    return {key: _with_self(part, True) if key.startswith("k:") else part for key, part in named.items()}


class FieldChange(NamedTuple):
    """Changed or added fields, and removed fields; None for none."""

    changed: FieldSet | None
    removed: FieldSet | None


_SAME: Final = FieldChange(None, None)


def compare(old: Any, new: Any, schema: Schema) -> FieldChange:
    """Return the fields in which two values differ. ``old`` is None if it does not exist."""
    if old is new or old == new:
        return _SAME
    if old is None:
        return FieldChange(set_of(new, schema), None)
    before, after = parts_of(old, schema), parts_of(new, schema)
    if before is None or after is None:
        return FieldChange({}, None)
    had = {key: (part, below) for key, part, below in before}
    changed: FieldSet = {}
    removed: FieldSet = {}
    for key, part, below in after:
        previous = had.pop(key, None)
        if previous is None:
            if part is not None:
                changed[key] = set_of(part, below)
            continue
        inner = compare(previous[0], part, below)
        if inner.changed is not None:
            changed[key] = inner.changed
        if inner.removed is not None:
            removed[key] = inner.removed
    for key, (part, below) in had.items():
        removed[key] = set_of(part, below)
    return FieldChange(changed or None, removed or None)


def owned(fields: FieldSet | None, reset: tuple[str, ...]) -> FieldSet | None:
    """Return a set without server-managed fields, and without the parts that this request cannot write."""
    if not fields:
        return None
    kept = {
        key: part for key, part in fields.items()
        if key not in (SELF, "f:apiVersion", "f:kind") and key[2:] not in reset
    }  # fmt: skip
    if "f:metadata" in kept:
        metadata = {
            key: part for key, part in kept["f:metadata"].items() if key not in _SERVER_METADATA and key != SELF
        }
        if metadata:
            kept["f:metadata"] = metadata
        else:
            del kept["f:metadata"]
    return kept or None


# --- managers -------------------------------------------------------------------------------------------------------


class FieldManager(NamedTuple):
    """A field manager: name, operation (Update or Apply), API version of the write, and subresource."""

    name: str
    operation: str
    api_version: str
    subresource: str = ""

    def owns(self, entry: dict[str, Any]) -> bool:
        """Return whether a managedFields entry is this manager's."""
        named = (entry.get(member) for member in ("manager", "operation", "apiVersion"))
        return (*named, entry.get("subresource", "")) == self

    def entry(self, fields: FieldSet, time: str) -> dict[str, Any]:
        """Return the managedFields entry."""
        made = {
            "manager": self.name, "operation": self.operation, "apiVersion": self.api_version, "time": time,
            "fieldsType": "FieldsV1", "fieldsV1": fields,
        }  # fmt: skip
        if self.subresource:
            made["subresource"] = self.subresource
        return made


def _order(entry: dict[str, Any]) -> tuple[str, ...]:
    return tuple(entry.get(part, "") for part in ("operation", "time", "manager", "apiVersion", "subresource"))


def given(metadata: dict[str, Any]) -> Managers:
    """Return the managers that a new object states; none if one of them is invalid."""
    found = metadata.get("managedFields") or []
    readable = all(
        isinstance(entry, dict)
        and all(isinstance(entry.get(name), str) for name in ("manager", "operation", "apiVersion"))
        and (_is_opaque(entry) or _is_set(entry.get("fieldsV1")))
        for entry in found
    )
    return [{"time": "", **entry} for entry in found] if readable else []


def _is_opaque(entry: dict[str, Any]) -> bool:
    """Return whether an entry's fields are nested so deeply that they are stored encoded and never read."""
    return isinstance(entry.get("fieldsV1"), msgspec.Raw)


def _is_set(value: Any) -> bool:
    return isinstance(value, dict) and all(_is_set(part) for part in value.values())


def after_update(managers: Managers, who: FieldManager, difference: FieldChange, now: str) -> Managers:
    """Return the managers after ``who`` changed an object: it owns the changed fields; removed fields have no owner."""
    changed, removed = difference
    own = _own(managers, who)
    kept = _losing(_losing([entry for entry in managers if entry is not own], changed), removed)
    mine: FieldSet | None = own["fieldsV1"] if own else None
    if changed:
        mine = changed if mine is None else union(mine, changed)
    if mine is not None and removed:
        mine = subtract(mine, removed)
    if mine is not None:
        kept.append(own if own is not None and mine == own["fieldsV1"] else who.entry(mine, now))
    return sorted(kept, key=_order)


def _own(managers: Managers, who: FieldManager) -> dict[str, Any] | None:
    return next((entry for entry in managers if who.owns(entry) and not _is_opaque(entry)), None)


def _losing(managers: Managers, gone: FieldSet | None) -> Managers:
    """Return the managers without these fields, and without managers that have no other fields."""
    if not gone:
        return managers
    kept: Managers = []
    for entry in managers:
        fields = entry["fieldsV1"] if _is_opaque(entry) else subtract(entry["fieldsV1"], gone)
        if fields is not None:
            kept.append(entry if fields == entry["fieldsV1"] else {**entry, "fieldsV1": fields})
    return kept


# --- server-side apply ----------------------------------------------------------------------------------------------


def apply(
    live: dict[str, Any] | None,
    managers: Managers,
    config: dict[str, Any],
    schema: Schema,
    who: FieldManager,
    *,
    force: bool,
    now: str,
    reset: tuple[str, ...] = (),
) -> tuple[Any, Managers]:
    """Apply ``config`` to ``live`` (server-side apply): set and own its fields, remove fields that it no longer states.

    Returns the merged object (without managedFields) and its managers.

    Raises StatusError 409 with every field that another manager owns with another value, unless ``force``.
    """
    wanted = owned(applied_set(config, schema), reset) or {}
    opaque = [entry for entry in managers if _is_opaque(entry)]
    managers = [entry for entry in managers if not _is_opaque(entry)]
    own = _own(managers, who)
    others = [entry for entry in managers if entry is not own]
    merged = merge(live, config, schema) if live is not None else config
    dropped = subtract(own["fieldsV1"], wanted) if own and own["fieldsV1"] else None
    for entry in others:
        dropped = subtract(dropped, entry["fieldsV1"]) if dropped else None
    if dropped:
        merged = without(merged, dropped, schema)
    changed = owned(compare(live or {}, merged, schema).changed, reset)
    if changed and others:
        others = _resolve(others, intersect(changed, wanted), force)
    entries = list(others)
    if wanted:
        entries.append(own if own is not None and own["fieldsV1"] == wanted else who.entry(wanted, now))
    return merged, sorted([*entries, *opaque], key=_order)


def _resolve(others: Managers, claimed: FieldSet | None, force: bool) -> Managers:
    if not claimed:
        return others
    faults = [
        (_described(entry), path)
        for entry in others
        if (both := intersect(claimed, entry["fieldsV1"])) is not None
        for path in leaves(both)
    ]
    if faults and not force:
        raise _conflicts(faults)
    return _losing(others, claimed)


def _described(entry: dict[str, Any]) -> str:
    name = f'"{entry["manager"]}"'
    if entry.get("subresource"):
        name += f' with subresource "{entry["subresource"]}"'
    if entry["operation"] == "Update":
        name += f" using {entry['apiVersion']}"
        name += f" at {entry['time']}" if entry.get("time") else ""
    return name


def path_text(path: tuple[str, ...]) -> str:
    """Format a path, such as ``.spec.containers[name="main"].image``."""
    text = ""
    for part in path:
        if part.startswith("f:"):
            text += f".{part[2:]}"
        elif part.startswith("k:"):
            keys = msgspec.json.decode(part[2:])
            text += "[" + ",".join(f"{key}={msgspec.json.encode(keys[key]).decode()}" for key in keys) + "]"
        else:
            text += f"[={part[2:]}]"
    return text


def _conflicts(faults: list[tuple[str, tuple[str, ...]]]) -> StatusError:
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {who}", "field": path_text(path)}
        for who, path in faults
    ]
    if len(faults) == 1:
        message = f"Apply failed with 1 conflict: conflict with {faults[0][0]}: {path_text(faults[0][1])}"
    else:
        message = f"Apply failed with {len(faults)} conflicts:"
        for who in dict.fromkeys(who for who, _ in faults):
            paths = [path_text(path) for owner, path in faults if owner == who]
            listed = "".join(f"\n- {path}" for path in paths)
            message += f" conflict with {who}: {paths[0]}" if len(paths) == 1 else f" conflicts with {who}:{listed}"
    return StatusError(409, "Conflict", message, {"causes": causes})


def merge(live: Any, config: Any, schema: Schema) -> Any:
    """Merge ``config`` into ``live``: objects by field, list items by key, atomic values as a whole."""
    if schema.atomic or live is None:
        return config
    if isinstance(config, dict) and isinstance(live, dict) and schema.type in (OBJECT, ANY):
        result = dict(live)
        for key, part in config.items():
            result[key] = merge(live.get(key), part, schema.properties.get(key, schema.values or ANYTHING))
        return result
    if schema.type == ARRAY and isinstance(config, list) and isinstance(live, list):
        items = schema.items or ANYTHING
        wanted = {item_key(item, schema): item for item in config}
        result_items = []
        for item in live:
            key = item_key(item, schema)
            result_items.append(merge(item, wanted.pop(key), items) if key in wanted else item)
        return [*result_items, *wanted.values()]
    return config


def without(value: Any, dropped: FieldSet, schema: Schema) -> Any:
    """Return ``value`` without the members of a set. A container that is a member is removed once it is empty."""
    parts = parts_of(value, schema)
    if parts is None:
        return value
    kept: list[tuple[Any, Any]] = []
    for index, (key, part, below) in enumerate(parts):
        position = index if isinstance(value, list) else key[2:]
        gone = dropped.get(key)
        if gone is None:
            kept.append((position, part))
            continue
        if parts_of(part, below) is None and member(gone):
            continue
        rest = without(part, gone, below)
        if not (member(gone) and _emptied(rest, below, gone)):
            kept.append((position, rest))
    return [part for _, part in kept] if isinstance(value, list) else dict(kept)


def _emptied(rest: Any, schema: Schema, gone: FieldSet) -> bool:
    """Return whether only the keys of the removed item remain."""
    if not rest:
        return True
    named = {key[2:] for key in gone if key.startswith("f:")}
    return isinstance(rest, dict) and SELF in gone and named.issuperset(rest)
