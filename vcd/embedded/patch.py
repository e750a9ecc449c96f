"""The three patch types that modify a document: JSON patch, merge patch and strategic merge patch."""

from __future__ import annotations

from typing import Any, Final

from jsonpatch import JsonPatch, JsonPatchException, JsonPointerException

from vcd.embedded.schema import ANYTHING, ARRAY, OBJECT, Schema
from vcd.embedded.schema_codec import copy
from vcd.embedded.status_errors import StatusError, bad_request

# --- RFC 7386 -------------------------------------------------------------------------------------------------------


def merge_patch(target: Any, patch: Any) -> Any:
    """Apply a merge patch (RFC 7386): merge objects, remove by null, replace other values. No argument is modified."""
    if not isinstance(patch, dict):
        return patch
    result = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        else:
            result[key] = merge_patch(result.get(key), value)
    return result


# --- RFC 6902 -------------------------------------------------------------------------------------------------------

_REJECTED: Final = "the server rejected our request due to an error in our request"


def json_patch(target: Any, operations: Any) -> Any:
    """Apply a JSON patch (RFC 6902). Raises StatusError 400 if it is invalid, 422 if it does not apply."""
    if not isinstance(operations, list) or not all(isinstance(op, dict) and "op" in op for op in operations):
        raise bad_request("error decoding patch: json: cannot unmarshal into Go value of type jsonpatch.Patch")
    stated = [{"value": None, **operation} for operation in operations]  # a missing value means null
    try:
        return JsonPatch(stated).apply(copy(target), in_place=True)
    except (JsonPatchException, JsonPointerException):
        raise StatusError(422, "Invalid", _REJECTED, {}) from None


# --- strategic merge patch ------------------------------------------------------------------------------------------

_DIRECTIVE: Final = "$patch"
_RETAIN: Final = "$retainKeys"
_DELETE_PRIMITIVES: Final = "$deleteFromPrimitiveList/"
_ORDER: Final = "$setElementOrder/"


def strategic_merge(target: Any, patch: Any, schema: Schema) -> Any:
    """Apply Kubernetes' strategic merge patch: a merge patch in which lists with a merge key are merged by item.

    Directives: ``$patch`` (replace, delete, merge), ``$retainKeys``, ``$setElementOrder/<list>`` and
    ``$deleteFromPrimitiveList/<list>``. No argument is modified. Raises StatusError 400 for an unknown directive, a
    directive without its list, and an item without its merge key.
    """
    if not isinstance(patch, dict):
        return patch
    if _DIRECTIVE in patch:
        return _apply_directive(target, patch, schema)
    result = dict(target) if isinstance(target, dict) else {}
    if _RETAIN in patch:
        kept = _listed(patch, _RETAIN, "retainKeys")
        result = {key: value for key, value in result.items() if key in kept}
    for key, value in patch.items():
        if key.startswith("$"):
            continue
        part = schema.properties.get(key, schema.values or ANYTHING)
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and (part.type == OBJECT or isinstance(result.get(key), dict)):
            merged = strategic_merge(result.get(key), value, part)
            if merged is None:
                result.pop(key, None)
            else:
                result[key] = merged
        elif isinstance(value, list) and part.type == ARRAY and part.merge:
            result[key] = _merge_list(result.get(key) or [], value, part, _order(patch, _ORDER + key))
        else:
            result[key] = copy(value)
    _directed_lists(result, patch, schema)
    return result


def _apply_directive(target: Any, patch: dict[str, Any], schema: Schema) -> Any:
    verb = patch[_DIRECTIVE]
    rest = {key: value for key, value in patch.items() if key != _DIRECTIVE}
    if verb == "replace":
        return rest
    if verb == "delete":
        return None
    if verb == "merge":
        return strategic_merge(target, rest, schema)
    raise bad_request(f"Unknown patch type found: {verb}")


def _listed(patch: dict[str, Any], directive: str, what: str) -> list[Any]:
    """Return the list of a directive. Raises StatusError 400 if its value is no list."""
    value = patch[directive]
    if not isinstance(value, list):
        raise bad_request(f"invalid patch format of {what}")
    return value


def _order(patch: dict[str, Any], directive: str) -> list[Any] | None:
    """Return the order that a directive states for a list; None if there is no directive."""
    return _listed(patch, directive, "setElementOrder list") if directive in patch else None


def _directed_lists(result: dict[str, Any], patch: dict[str, Any], schema: Schema) -> None:
    """Apply directives about lists: values to delete, and an order for lists that the patch does not contain."""
    for key in patch:
        if key.startswith(_DELETE_PRIMITIVES):
            name = key.removeprefix(_DELETE_PRIMITIVES)
            gone = _listed(patch, key, "primitive list")
            result[name] = [item for item in result.get(name) or [] if item not in gone]
            if not result[name]:
                del result[name]
        elif key.startswith(_ORDER):
            name = key.removeprefix(_ORDER)
            order = _listed(patch, key, "setElementOrder list")
            if name not in patch and name in result:
                part = schema.properties.get(name, ANYTHING)
                result[name] = _in_order(result[name], order, result[name], part.merge_key)


def _merge_list(live: list[Any], patch: list[Any], schema: Schema, order: list[Any] | None) -> list[Any]:
    items = schema.items or ANYTHING
    key = schema.merge_key
    if items.type != OBJECT or not key:
        merged = [*live, *(item for item in patch if item not in live)]
        return _in_order(merged, order or patch, live, "")
    replaced = [item for item in patch if isinstance(item, dict) and item.get(_DIRECTIVE) == "replace"]
    if replaced:
        return [item for item in patch if item not in replaced]
    merged = list(live)
    named = []
    for item in patch:
        if not isinstance(item, dict) or key not in item:
            raise bad_request(f"map: {item} does not contain declared merge key: {key}")
        at = next((place for place, old in enumerate(merged) if old.get(key) == item[key]), None)
        if item.get(_DIRECTIVE) == "delete":
            merged = [old for old in merged if old.get(key) != item[key]]
            continue
        named.append(item)
        made = strategic_merge(merged[at] if at is not None else {}, item, items)
        if at is None:
            merged.append(made)
        else:
            merged[at] = made
    return _in_order(merged, order or named, live, key)


def _identity(item: Any, key: str) -> Any:
    return item.get(key) if key and isinstance(item, dict) else item


def _in_order(merged: list[Any], wanted: list[Any], live: list[Any], key: str) -> list[Any]:
    """Return the items of the patch in its order and all others in the live order, interleaved by the live order."""
    order = [_identity(item, key) for item in wanted]
    before = [_identity(item, key) for item in live]
    ours = sorted((item for item in merged if _identity(item, key) in order),
                  key=lambda item: order.index(_identity(item, key)))  # fmt: skip
    theirs = [item for item in merged if _identity(item, key) not in order]
    result = []
    while ours and theirs:
        left, right = _identity(theirs[0], key), _identity(ours[0], key)
        theirs_first = left in before and right in before and before.index(left) < before.index(right)
        result.append((theirs if theirs_first else ours).pop(0))
    return [*result, *theirs, *ours]
