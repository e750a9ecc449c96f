"""The forms of objects that a client may request: complete, as a Table, or only their metadata."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from vcd.embedded.printer_columns import Columns
from vcd.embedded.status_errors import StatusError
from vcd.embedded.watch_cache import Entry

Object = dict[str, Any]

PLAIN: Final = ""
TABLE: Final = "Table"
PARTIAL: Final = "PartialObjectMetadata"
PARTIAL_LIST: Final = "PartialObjectMetadataList"
_KNOWN: Final = (TABLE, PARTIAL, PARTIAL_LIST)
_META: Final = "meta.k8s.io/v1"
_PARAMETER: Final = re.compile(r"\s*;\s*")
_JSON_TYPES: Final = ("application/json", "application/*", "*/*", "", "application/yaml", "text/plain", "text/*")


def wanted(accept: str) -> str:
    """Return the first form in an Accept header that is served.

    Raises StatusError 406 if none is. Protobuf is not served.
    """
    if not accept or accept == "application/json":
        return PLAIN
    for choice in accept.split(","):
        media, *parameters = _PARAMETER.split(choice.strip())
        if media not in _JSON_TYPES:
            continue
        options = dict(parameter.partition("=")[::2] for parameter in parameters)
        form: str = options.get("as", PLAIN)
        if form and not (form in _KNOWN and options.get("g") == "meta.k8s.io" and options.get("v") == "v1"):
            continue
        return form
    served = "application/json, application/json;stream=watch"
    raise StatusError(406, "NotAcceptable", f"only the following media types are accepted: {served}", {})


def partial(obj: Mapping[str, Any]) -> Object:
    """Return an object's PartialObjectMetadata."""
    return {"kind": PARTIAL, "apiVersion": _META, "metadata": obj["metadata"]}


def partial_list(entries: Iterable[Entry], metadata: Object) -> Object:
    """Return a PartialObjectMetadataList."""
    return {
        "kind": PARTIAL_LIST, "apiVersion": _META, "metadata": metadata,
        "items": [partial(entry.obj) for entry in entries],
    }  # fmt: skip


def table(
    columns: Columns, objects: Sequence[Object], metadata: Object, now: float, *, include: str = "Metadata",
    headers: bool = True,
) -> Object:  # fmt: skip
    """Return objects as a ``meta.k8s.io/v1`` Table. ``include`` is includeObject: None, Metadata or Object."""
    rows: list[Object] = [{"cells": columns.cells(obj, now)} for obj in objects]
    for row, obj in zip(rows, objects, strict=True):
        if include != "None":
            row["object"] = obj if include == "Object" else partial(obj)
    return {
        "kind": TABLE, "apiVersion": _META, "metadata": metadata,
        "columnDefinitions": columns.definitions if headers else None, "rows": rows,
    }  # fmt: skip
