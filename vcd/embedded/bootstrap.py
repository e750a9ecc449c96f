"""The objects of a new cluster: namespaces, the system's priority classes, Volcano's custom resource definitions."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from importlib import resources
from typing import Any, Final

import yaml

from vcd.embedded.resource_types import CRDS, PRIORITY_CLASSES
from vcd.model.podadmission import SYSTEM_PRIORITIES

Object = dict[str, Any]

NAMESPACES: Final = ("default", "kube-node-lease", "kube-public", "kube-system")
_SYSTEM_CLASSES: Final = (
    ("system-cluster-critical",
     "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary."),
    ("system-node-critical",
     "Used for system critical pods that must not be moved from their current node."),
)  # fmt: skip


@cache
def volcano_definitions() -> tuple[Object, ...]:
    """Return the custom resource definitions in the package, sorted by file name."""
    folder = resources.files("vcd.embedded") / "crds"
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    files = sorted((entry for entry in folder.iterdir() if entry.name.endswith(".yaml")), key=lambda entry: entry.name)
    return tuple(document for file in files for document in yaml.load_all(file.read_text(), Loader=loader) if document)


def objects() -> Iterator[tuple[str, Object]]:
    """Yield (resource, object) for each object of a new cluster."""
    for name in NAMESPACES:
        yield "namespaces", {"metadata": {"name": name}}
    for name, description in _SYSTEM_CLASSES:
        value = SYSTEM_PRIORITIES[name]
        yield PRIORITY_CLASSES, {"metadata": {"name": name}, "value": value, "description": description}
    for definition in volcano_definitions():
        yield CRDS, definition
