"""What is planted: a cluster with one cause for which one job waits, what an answer has to name, and what mends it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

Manifest = dict[str, Any]
Named = tuple[str, str]
"""A kind and a key."""


@dataclass(frozen=True)
class Stage:
    """What comes and goes at once, and for how many seconds it is left at that; jobs whose pods all run by then."""

    put: tuple[Manifest, ...] = ()
    gone: tuple[Named, ...] = ()
    seconds: float = 600.0
    runs: tuple[str, ...] = ()


@dataclass(frozen=True)
class Fix:
    """An edit of the manifests: these instead of, or beside, what has their names; without those; another
    configuration."""

    put: tuple[Manifest, ...] = ()
    gone: tuple[Named, ...] = ()
    conf: str = ""


@dataclass(frozen=True)
class Plant:
    """A cluster in which ``asked`` (a job's key) waits for one cause.

    ``subject`` holds, by role, texts of which one has to be within what the verdict names; ``minimum`` is how many of
    the job's pods make it start.
    """

    code: str
    seed: int
    conf: str
    asked: str
    minimum: int
    stages: tuple[Stage, ...]
    subject: Mapping[str, tuple[str, ...]]
    fix: Fix
    variant: str = ""
    namespaces: tuple[str, ...] = field(default=("default",))

    @property
    def label(self) -> str:
        """What a test and a table call it."""
        return f"{self.code}-{self.seed}{f'-{self.variant}' if self.variant else ''}"

    def fixed(self) -> Plant:
        """The same cluster with the fix in it from the start."""
        edits = {named(manifest): manifest for manifest in self.fix.put}
        there = {named(manifest) for stage in self.stages for manifest in stage.put}
        fresh = tuple(manifest for name, manifest in edits.items() if name not in there)
        gone = {*self.fix.gone, *(("Pod", key) for key in self._pods_of_those_gone())}
        stages = []
        for stage in self.stages:
            kept = tuple(edits.get(named(m), m) for m in stage.put if named(m) not in gone)
            ends = tuple(name for name in stage.gone if name not in gone)
            still = tuple(key for key in stage.runs if ("PodGroup", key) not in gone)
            stages.append(replace(stage, put=kept, gone=ends, runs=still))
        stages[0] = replace(stages[0], put=(*stages[0].put, *fresh))
        return replace(self, stages=tuple(stages), conf=self.fix.conf or self.conf)

    def then(self, fix: Fix, minimum: int) -> Plant:
        """The same cluster in which somebody makes a change while the job waits, which needs so many pods then."""
        changed = replace(self, fix=fix)
        gone = (*fix.gone, *(("Pod", key) for key in changed._pods_of_those_gone()))
        return replace(self, stages=(*self.stages, Stage(put=fix.put, gone=gone)), minimum=minimum)

    def after_closed(self, seconds: float = 30.0) -> Plant:
        """The same, after a time in which the job's queue is closed, too."""
        first = self.stages[0]
        group = next(m for m in first.put if named(m) == ("PodGroup", self.asked))
        queue = next(m for m in first.put if named(m) == ("Queue", group["spec"]["queue"]))
        closed = {**queue, "status": {"state": "Closed"}}
        before = replace(first, put=tuple(closed if m is queue else m for m in first.put), seconds=seconds, runs=())
        opened = replace(first, put=(queue,))
        return replace(self, stages=(before, opened, *self.stages[1:]))

    def _pods_of_those_gone(self) -> Iterable[str]:
        groups = {key for kind, key in self.fix.gone if kind == "PodGroup"}
        pods = (manifest for stage in self.stages for manifest in stage.put if manifest["kind"] == "Pod")
        return [key_of(pod) for pod in pods if group_of(pod) in groups]


def key_of(manifest: Manifest) -> str:
    """``namespace/name``, or the name of what has no namespace."""
    meta = manifest["metadata"]
    return f"{meta['namespace']}/{meta['name']}" if meta.get("namespace") else str(meta["name"])


def named(manifest: Manifest) -> Named:
    """The kind and the key of a manifest."""
    return manifest["kind"], key_of(manifest)


def group_of(pod: Manifest) -> str:
    """The key of a pod's group; empty where it has none."""
    name = pod["metadata"].get("annotations", {}).get("scheduling.k8s.io/group-name")
    return f"{pod['metadata']['namespace']}/{name}" if name else ""
