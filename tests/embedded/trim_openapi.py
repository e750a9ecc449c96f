"""Writes vcd/embedded/openapi.json: what the embedded API server needs of Kubernetes' OpenAPI document.

``python -m tests.embedded.trim_openapi SWAGGER`` reads ``api/openapi-spec/swagger.json`` of a Kubernetes release, and
writes the definitions of the served kinds and all that they refer to, unchanged, one a line.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from vcd.embedded import schema
from vcd.embedded.resource_types import BUILT_IN, DELETE_OPTIONS, EVICTION, SCALES

OUT = Path(schema.__file__).with_name("openapi.json")


def trimmed(definitions: dict[str, Any]) -> dict[str, Any]:
    """Return the definitions of the served kinds, and those that they refer to, by name."""
    names = schema.names_by_kind(definitions)
    kinds = (*BUILT_IN, DELETE_OPTIONS, EVICTION, SCALES)
    roots = [names[each.group, each.version, each.kind] for each in kinds]
    return {name: definitions[name] for name in sorted(schema.closure(definitions, [*roots, schema.OBJECT_META]))}


def lines(definitions: dict[str, Any]) -> Iterator[str]:
    """Yield the lines of the file."""
    yield '{"swagger": "2.0", "definitions": {'
    last = len(definitions) - 1
    for place, (name, definition) in enumerate(definitions.items()):
        text = json.dumps(definition, ensure_ascii=False, sort_keys=True)
        yield f"{json.dumps(name)}: {text}{',' if place < last else ''}"
    yield "}}"


if __name__ == "__main__":
    upstream = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    OUT.write_text("".join(f"{line}\n" for line in lines(trimmed(upstream["definitions"]))), encoding="utf-8")
