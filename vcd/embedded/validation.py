"""Validation beyond schemas: names, labels, immutable fields, and some rules of single kinds."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any, Final

from vcd.embedded.defaults import containers_of
from vcd.embedded.resource_types import CRDS, LIMIT_RANGES, PDBS, ResourceType
from vcd.embedded.schema import structural
from vcd.embedded.schema_codec import at, copy, name_of
from vcd.embedded.status_errors import StatusCause, invalid
from vcd.model.podadmission import requests_above_limits
from vcd.model.quantity import QuantityError, resource_value
from vcd.model.selectors import LabelSelector, SelectorError, is_label_value, is_qualified_name

Object = dict[str, Any]

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN: Final = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_SUBDOMAIN_TEXT: Final = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or '.', and must start "
    "and end with an alphanumeric character (e.g. 'example.com', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?(\\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_TEXT: Final = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and must start and end "
    "with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used for validation is "
    "'[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_KEY_TEXT: Final = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric "
    "character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is "
    "'([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_VALUE_TEXT: Final = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or '.', and must start and "
    "end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',  or '12345', regex used for validation is "
    "'(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_LABEL_NAMES: Final = frozenset({"namespaces", "services"})
_PATH_NAMES: Final = frozenset({
    "roles.rbac.authorization.k8s.io", "rolebindings.rbac.authorization.k8s.io",
    "clusterroles.rbac.authorization.k8s.io", "clusterrolebindings.rbac.authorization.k8s.io",
})  # fmt: skip


def required(field: str) -> StatusCause:
    """Return the cause for a missing required field."""
    return StatusCause("FieldValueRequired", "Required value", field)


def wrong(field: str, value: Any, why: str) -> StatusCause:
    """Return the cause for an invalid value."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return StatusCause("FieldValueInvalid", f"Invalid value: {text}: {why}", field)


def forbidden(field: str, why: str) -> StatusCause:
    """Return the cause for a value that is forbidden in this place."""
    return StatusCause("FieldValueForbidden", f"Forbidden: {why}", field)


def check(rtype: ResourceType, obj: Object) -> None:
    """Raise StatusError 422 with all faults of an object, if it has any."""
    of_kind = _CHECKS.get(rtype.storage)
    causes = [*_metadata(rtype, obj["metadata"]), *(of_kind(obj) if of_kind else ())]
    if causes:
        raise invalid(rtype.kind, rtype.group, name_of(obj), causes)


def check_update(rtype: ResourceType, old: Object, new: Object) -> None:
    """Raise StatusError 422 for a change of immutable fields."""
    of_kind = _UPDATE_CHECKS.get(rtype.storage)
    causes = list(of_kind(old, new)) if of_kind else []
    if causes:
        raise invalid(rtype.kind, rtype.group, name_of(new), causes)


# --- metadata -------------------------------------------------------------------------------------------------------


def _metadata(rtype: ResourceType, metadata: Object) -> Iterator[StatusCause]:
    name = metadata.get("name") or ""
    if not name:
        yield StatusCause("FieldValueRequired", "Required value: name or generateName is required", "metadata.name")
    elif (why := _name_fault(rtype, name)) is not None:
        yield wrong("metadata.name", name, why)
    for key, value in (metadata.get("labels") or {}).items():
        if not is_qualified_name(key):
            yield wrong("metadata.labels", key, _KEY_TEXT)
        if not is_label_value(value):
            yield wrong("metadata.labels", value, _VALUE_TEXT)
    for index, owner in enumerate(metadata.get("ownerReferences") or ()):
        for field in ("apiVersion", "kind", "name", "uid"):
            if not owner.get(field):
                yield required(f"metadata.ownerReferences[{index}].{field}")


def _name_fault(rtype: ResourceType, name: str) -> str | None:
    if rtype.resource in _PATH_NAMES:
        return "may not contain '/' or '%'" if "/" in name or "%" in name else None
    if rtype.resource in _LABEL_NAMES:
        fits = len(name) <= 63 and _LABEL.fullmatch(name)
        return None if fits else _LABEL_TEXT if len(name) <= 63 else "must be no more than 63 characters"
    if len(name) > 253:
        return "must be no more than 253 characters"
    return None if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_TEXT


# --- single kinds ---------------------------------------------------------------------------------------------------


def _pod_spec(spec: Object, where: str) -> Iterator[StatusCause]:
    if not spec.get("containers"):
        yield required(f"{where}.containers")
    names: set[str] = set()
    for member, index, container in containers_of({"spec": spec}):
        path = f"{where}.{member}[{index}]"
        name = container.get("name")
        if not name:
            yield required(f"{path}.name")
        elif name in names:
            yield StatusCause("FieldValueDuplicate", f'Duplicate value: "{name}"', f"{path}.name")
        names.add(name or "")
        if not container.get("image"):
            yield required(f"{path}.image")
        yield from _resources(container.get("resources") or {}, f"{path}.resources")
    if spec.get("restartPolicy") not in ("Always", "OnFailure", "Never", None):
        why = f'Unsupported value: "{spec["restartPolicy"]}": supported values: "Always", "OnFailure", "Never"'
        yield StatusCause("FieldValueNotSupported", why, f"{where}.restartPolicy")


def _resources(resources: Object, where: str) -> Iterator[StatusCause]:
    for member in ("limits", "requests"):
        for name, amount in (resources.get(member) or {}).items():
            if amount.lstrip().startswith("-"):
                yield wrong(f"{where}.{member}[{name}]", amount, "must be greater than or equal to 0")
    for name, amount, limit in requests_above_limits(resources):
        yield wrong(f"{where}.requests", amount, f"must be less than or equal to {name} limit of {limit}")


def _service(service: Object) -> Iterator[StatusCause]:
    for index, port in enumerate((service.get("spec") or {}).get("ports") or ()):
        if not port.get("port"):
            yield required(f"spec.ports[{index}].port")


def _event(event: Object) -> Iterator[StatusCause]:
    involved = (event.get("involvedObject") or {}).get("namespace") or ""
    namespace = event["metadata"].get("namespace")
    if (involved or "default") != namespace:
        yield wrong("involvedObject.namespace", involved, "does not match event.namespace")


def _workload(workload: Object) -> Iterator[StatusCause]:
    spec = workload.get("spec") or {}
    template = spec.get("template") or {}
    yield from _pod_spec(template.get("spec") or {}, "spec.template.spec")
    if (spec.get("replicas") or 0) < 0:
        yield wrong("spec.replicas", spec["replicas"], "must be greater than or equal to 0")
    if not spec.get("selector"):
        yield required("spec.selector")
        return
    labels = (template.get("metadata") or {}).get("labels") or {}
    faults = list(_selector(spec))
    yield from faults
    if not faults and not LabelSelector.compile(spec["selector"]).matches(labels):
        yield wrong("spec.template.metadata.labels", labels, "`selector` does not match template `labels`")


def _disruption_budget(budget: Object) -> Iterator[StatusCause]:
    spec = budget.get("spec") or {}
    if spec.get("minAvailable") is not None and spec.get("maxUnavailable") is not None:
        yield wrong("spec", "", "minAvailable and maxUnavailable cannot be both set")
    yield from _selector(spec)


def _selector(spec: Object) -> Iterator[StatusCause]:
    try:
        LabelSelector.compile(spec.get("selector"))
    except SelectorError as error:
        yield wrong("spec.selector", spec.get("selector"), str(error))


def _limit_range(limit_range: Object) -> Iterator[StatusCause]:
    for index, item in enumerate((limit_range.get("spec") or {}).get("limits") or ()):
        for member, name, amount in _amounts_of(item):
            try:
                resource_value(name, amount)
            except QuantityError as error:
                yield wrong(f"spec.limits[{index}].{member}[{name}]", amount, str(error))


def _amounts_of(item: Object) -> Iterator[tuple[str, str, str]]:
    """Yield member, resource and quantity of a LimitRange's item."""
    for member in ("max", "min", "default", "defaultRequest", "maxLimitRequestRatio"):
        yield from ((member, name, amount) for name, amount in (item.get(member) or {}).items())


_USER_PRIORITY_LIMIT: Final = 1_000_000_000


def _priority_class(priority_class: Object) -> Iterator[StatusCause]:
    name, value = priority_class["metadata"].get("name", ""), priority_class.get("value", 0)
    if name.startswith("system-") and name not in ("system-cluster-critical", "system-node-critical"):
        why = "priority class names with 'system-' prefix are reserved for system use only"
        yield forbidden("metadata.name", why)
    elif not name.startswith("system-") and value > _USER_PRIORITY_LIMIT:
        yield forbidden("value", f"maximum allowed value of a user defined priority is {_USER_PRIORITY_LIMIT}")


def _definition(crd: Object) -> Iterator[StatusCause]:
    spec = crd.get("spec") or {}
    for field in ("group", "names.plural", "names.kind", "versions"):
        if not at(spec, field):
            yield required(f"spec.{field}")
    plural = (spec.get("names") or {}).get("plural")
    wanted = f"{plural}.{spec.get('group')}"
    if crd["metadata"].get("name") != wanted:
        yield wrong("metadata.name", crd["metadata"].get("name"), 'must be spec.names.plural+"."+spec.group')
    if spec.get("scope") not in ("Namespaced", "Cluster"):
        yield required("spec.scope")
    if sum(1 for version in spec.get("versions") or () if version.get("storage")) != 1:
        yield wrong("spec.versions", "", "must have exactly one version marked as storage version")
    for index, version in enumerate(spec.get("versions") or ()):
        yield from _version(version, f"spec.versions[{index}]")


_LISTED: Final = (("additionalPrinterColumns", ("name", "type", "jsonPath")), ("selectableFields", ("jsonPath",)))
"""The lists in a version of a custom resource definition, and the required fields of their items."""


def _version(version: Object, where: str) -> Iterator[StatusCause]:
    if not version.get("name"):
        yield required(f"{where}.name")
    source = at(version, "schema.openAPIV3Schema", {})
    try:
        structural(source)
    except ValueError as error:
        yield wrong(f"{where}.schema.openAPIV3Schema", "", str(error))
    for member, fields in _LISTED:
        for index, column in enumerate(version.get(member) or ()):
            for field in fields:
                if not column.get(field):
                    yield required(f"{where}.{member}[{index}].{field}")


_CHECKS: Final[dict[str, Callable[[Object], Iterator[StatusCause]]]] = {
    "pods": lambda pod: _pod_spec(pod.get("spec") or {}, "spec"),
    LIMIT_RANGES: _limit_range,
    "services": _service,
    "events": _event,
    "deployments.apps": _workload,
    "replicasets.apps": _workload,
    PDBS: _disruption_budget,
    "priorityclasses.scheduling.k8s.io": _priority_class,
    CRDS: _definition,
}

# --- changes --------------------------------------------------------------------------------------------------------

_POD_CHANGE: Final = (
    "pod updates may not change fields other than `spec.containers[*].image`,"
    "`spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to existing "
    "tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was previously negative)"
)


def _pod_change(old: Object, new: Object) -> Iterator[StatusCause]:
    before, after = old["spec"], new["spec"]
    if before == after:
        return
    gates = [gate["name"] for gate in before.get("schedulingGates") or ()]
    added = [gate["name"] for gate in after.get("schedulingGates") or () if gate["name"] not in gates]
    if added:
        yield forbidden("spec.schedulingGates", f"only deletion is allowed, but found new scheduling gate '{added[0]}'")
        return
    allowed = _mutable_part(before, after, gated=bool(gates))
    if allowed != after:
        yield forbidden("spec", _POD_CHANGE)


def _mutable_part(before: Object, after: Object, *, gated: bool) -> Object:
    """Return ``before`` with the mutable fields of a pod's spec from ``after``."""
    result: Object = copy(before)
    changeable = ["activeDeadlineSeconds", "schedulingGates"]
    kept = before.get("tolerations") or []
    if all(toleration in (after.get("tolerations") or []) for toleration in kept):
        changeable.append("tolerations")
    if gated:
        changeable += ["nodeSelector", "affinity"]
    if before.get("terminationGracePeriodSeconds", 0) < 0 and after.get("terminationGracePeriodSeconds") == 1:
        changeable.append("terminationGracePeriodSeconds")
    for key in changeable:
        result.pop(key, None)
        if key in after:
            result[key] = after[key]
    for member in ("containers", "initContainers"):
        ours, theirs = result.get(member) or [], after.get(member) or []
        for mine, wanted in zip(ours, theirs, strict=False):
            if wanted.get("image"):
                mine["image"] = wanted["image"]
    return result


def _immutable(*fields: str) -> Callable[[Object, Object], Iterator[StatusCause]]:
    def checked(old: Object, new: Object) -> Iterator[StatusCause]:
        for field in fields:
            before, after = at(old, field), at(new, field)
            if before != after:
                yield wrong(field, after, "field is immutable")

    return checked


_UPDATE_CHECKS: Final[dict[str, Callable[[Object, Object], Iterator[StatusCause]]]] = {
    "pods": _pod_change,
    "deployments.apps": _immutable("spec.selector"),
    "replicasets.apps": _immutable("spec.selector"),
    "priorityclasses.scheduling.k8s.io": _immutable("value", "preemptionPolicy"),
    "storageclasses.storage.k8s.io": _immutable("provisioner", "parameters", "reclaimPolicy", "volumeBindingMode"),
    CRDS: _immutable("spec.group", "spec.scope", "spec.names.plural", "spec.names.kind"),
}
