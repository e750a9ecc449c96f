"""Label and field selectors of a list or watch request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from vcd.embedded.resource_types import ResourceType
from vcd.embedded.schema_codec import at
from vcd.embedded.status_errors import bad_request
from vcd.model.selectors import FieldSelector, Selector, SelectorError, parse_field_selector, parse_label_selector

Object = Mapping[str, Any]

_ANY_KIND: Final = ("metadata.name", "metadata.namespace")
_FIELDS: Final[dict[str, tuple[str, ...]]] = {
    "pods": (
        "spec.nodeName", "spec.restartPolicy", "spec.schedulerName", "spec.serviceAccountName", "spec.hostNetwork",
        "status.phase", "status.podIP", "status.nominatedNodeName",
    ),
    "nodes": ("spec.unschedulable",),
    "events": (
        "involvedObject.kind", "involvedObject.namespace", "involvedObject.name", "involvedObject.uid",
        "involvedObject.apiVersion", "involvedObject.resourceVersion", "involvedObject.fieldPath", "reason",
        "reportingComponent", "source", "type",
    ),
    "secrets": ("type",),
    "namespaces": ("status.phase",),
    "replicasets.apps": ("status.replicas",),
}  # fmt: skip
_FALSE_WHEN_ABSENT: Final = ("spec.unschedulable", "spec.hostNetwork")


def _value(obj: Object, field: str) -> str:
    value = at(obj, "source.component" if field == "source" else field, False if field in _FALSE_WHEN_ABSENT else "")
    return str(value).lower() if isinstance(value, bool) else str(value)


@dataclass(frozen=True, slots=True)
class Selection:
    """The compiled selectors of one request; None selects everything."""

    labels: Selector | None
    fields: FieldSelector | None

    @property
    def everything(self) -> bool:
        """Return whether every object is selected."""
        return self.labels is None and self.fields is None

    def matches(self, obj: Object) -> bool:
        """Return whether the object is selected."""
        if self.labels is not None and not self.labels.matches(obj["metadata"].get("labels") or {}):
            return False
        if self.fields is None:
            return True
        return self.fields.matches({need.field: _value(obj, need.field) for need in self.fields.requirements})


def selection(rtype: ResourceType, query: Mapping[str, str], name: str = "") -> Selection:
    """Return the selection of a request's query, restricted to the name in the path, if any.

    Raises StatusError 400 for an invalid selector, or a field that the kind does not support in selectors.
    """
    try:
        labels = parse_label_selector(query["labelSelector"]) if query.get("labelSelector") else None
        parts = (query.get("fieldSelector", ""), f"metadata.name={name}" if name else "")
        text = ",".join(part for part in parts if part)
        fields = parse_field_selector(text) if text else None
    except SelectorError as error:
        raise bad_request(f"unable to parse requirement: {error}") from None
    allowed = (*_ANY_KIND, *_FIELDS.get(rtype.storage, ()), *_selectable(rtype))
    for need in fields.requirements if fields else ():
        if need.field not in allowed:
            raise bad_request(f"field label not supported: {need.field}")
    return Selection(labels, fields)


def selected_name(query: Mapping[str, str]) -> str:
    """Return the single name that a field selector allows; authorization treats it like a name in the path."""
    needs = (part.replace("==", "=").partition("=") for part in query.get("fieldSelector", "").split(","))
    return next((name for field, sign, name in needs if (field, sign) == ("metadata.name", "=")), "")


def _selectable(rtype: ResourceType) -> tuple[str, ...]:
    declared = (rtype.definition or {}).get("selectableFields") or ()
    return tuple(field["jsonPath"].removeprefix(".") for field in declared)
