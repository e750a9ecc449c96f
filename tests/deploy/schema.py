"""The part of JSON schema that the schemas in schemas.yaml use, and the check of a value against it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

TYPES: dict[str, type | tuple[type, ...]] = {
    "object": dict,
    "array": list,
    "string": str,
    "integer": int,
    "boolean": bool,
}


def problems(value: Any, schema: dict[str, Any], definitions: dict[str, Any], at: str = "") -> Iterator[str]:
    """What is wrong with `value`: a line for each fault, with its path. A field that no schema lists is a fault."""
    if "$ref" in schema:
        schema = definitions[schema["$ref"]]
    kind = schema["type"]
    if not isinstance(value, TYPES[kind]) or (kind == "integer" and isinstance(value, bool)):
        yield f"{at}: {value!r} is no {kind}"
        return
    if "enum" in schema and value not in schema["enum"]:
        yield f"{at}: {value!r} is none of {schema['enum']}"
    if "pattern" in schema and not re.fullmatch(schema["pattern"], value):
        yield f"{at}: {value!r} does not match {schema['pattern']}"
    if kind == "object":
        yield from object_problems(value, schema, definitions, at)
    if kind == "array":
        for index, item in enumerate(value):
            yield from problems(item, schema["items"], definitions, f"{at}[{index}]")


def object_problems(
    value: dict[str, Any], schema: dict[str, Any], definitions: dict[str, Any], at: str
) -> Iterator[str]:
    """What is wrong with the fields of an object."""
    properties, others = schema.get("properties", {}), schema.get("additionalProperties")
    for name in schema.get("required", []):
        if name not in value:
            yield f"{at}: {name} is missing"
    for name, item in value.items():
        if name in properties:
            yield from problems(item, properties[name], definitions, f"{at}.{name}")
        elif others is not None:
            yield from problems(item, others, definitions, f"{at}.{name}")
        else:
            yield f"{at}: {name} is not a field"
