"""What `kubectl kustomize` makes of deploy/, in Python, so that the manifests can be checked without kubectl.

Knows what these kustomizations use - resources, components, strategic merge patches, a JSON patch that may change the
kind - and refuses all else.
"""

from __future__ import annotations

import copy
import functools
from pathlib import Path
from typing import Any

import jsonpatch
import yaml

Manifest = dict[str, Any]
Key = tuple[str, str, str]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
FILE_NAMES = ("kustomization.yaml", "kustomization.yml", "Kustomization")
FIELDS = {"apiVersion", "kind", "resources", "components", "patches"}


def key(manifest: Manifest) -> Key:
    """Kind, namespace (empty for what has none) and name."""
    metadata = manifest["metadata"]
    return manifest["kind"], metadata.get("namespace", ""), metadata["name"]


def kustomization_file(folder: Path) -> Path:
    """The one file that makes `folder` a kustomization."""
    found = [folder / name for name in FILE_NAMES if (folder / name).is_file()]
    if len(found) != 1:
        raise ValueError(f"{folder}: expected one of {FILE_NAMES}, found {len(found)}")
    return found[0]


def render(folder: Path) -> dict[Key, Manifest]:
    """The manifests of the kustomization in `folder`, by key."""
    manifests: dict[Key, Manifest] = {}
    apply(folder, manifests)
    return manifests


def apply(folder: Path, manifests: dict[Key, Manifest]) -> None:
    """Add and patch in `manifests` what the kustomization or component in `folder` says.

    Raises ValueError on a field that is not known here, on an object that is there twice and on a patch without a
    target.
    """
    (kustomization,) = documents(kustomization_file(folder))
    if unknown := set(kustomization) - FIELDS:
        raise ValueError(f"{folder}: {sorted(unknown)} not known here")
    for name in kustomization.get("resources", []):
        path = folder / name
        for manifest in list(render(path).values()) if path.is_dir() else documents(path):
            if manifests.setdefault(key(manifest), manifest) is not manifest:
                raise ValueError(f"{path}: {key(manifest)} is there twice")
    for name in kustomization.get("components", []):
        apply(folder / name, manifests)
    for entry in kustomization.get("patches", []):
        if "target" in entry:
            json_patch_with(folder / entry["path"], entry["target"], manifests)
        else:
            patch_with(folder / entry["path"], manifests)


def documents(path: Path) -> list[Any]:
    """The manifests in a YAML file, or what else its documents are."""
    return [copy.deepcopy(document) for document in _parsed(path.read_text()) if document is not None]


@functools.cache
def _parsed(text: str) -> list[Any]:
    return list(yaml.load_all(text, Loader=_LOADER))


def patch_with(path: Path, manifests: dict[Key, Manifest]) -> None:
    """Apply the strategic merge patches in `path`."""
    for patch in documents(path):
        if key(patch) not in manifests:
            raise ValueError(f"{path}: no {key(patch)} to patch")
        if patch.pop("$patch", None) == "delete":
            del manifests[key(patch)]
        else:
            manifests[key(patch)] = merged(manifests[key(patch)], patch)


def json_patch_with(path: Path, target: Manifest, manifests: dict[Key, Manifest]) -> None:
    """Apply the JSON patch in `path` to the manifest of a kind and name, where there is one, as kustomize does; what it
    makes may be of another kind."""
    for found in [each for each in manifests if (each[0], each[2]) == (target["kind"], target["name"])]:
        (patch,) = documents(path)
        made = jsonpatch.apply_patch(manifests.pop(found), patch)
        manifests[key(made)] = made


def merged(base: Any, patch: Any) -> Any:
    """Strategic merge: mappings by key (null removes), lists of named things by name (the patch's first),
    all else replaced."""
    if isinstance(base, dict) and isinstance(patch, dict):
        result = {name: value for name, value in base.items() if patch.get(name, value) is not None}
        for name, value in patch.items():
            if value is not None:
                result[name] = merged(result.get(name), value)
        return result
    if has_names(base) and has_names(patch):
        old = {item["name"]: item for item in base}
        gone = [old.pop(item["name"]) for item in patch if item.get("$patch") == "delete"]
        kept = [item for item in patch if "$patch" not in item]
        assert len(gone) + len(kept) == len(patch)
        return [merged(old.pop(item["name"], {}), item) for item in kept] + list(old.values())
    return copy.deepcopy(patch)


def has_names(value: Any) -> bool:
    """Whether `value` is a list of mappings that Kubernetes merges by their name."""
    return isinstance(value, list) and all(isinstance(item, dict) and "name" in item for item in value)
