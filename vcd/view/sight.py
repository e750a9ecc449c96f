"""What somebody may see of a log who may not see all of it: by the rights that they have in the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from vcd.serving.access import Access

PAGE = Access("get", path="/vcd/page")
"""Who may do this sees everything. Not the address of a question of the page: any authenticated user may get ``/api/*``
by Kubernetes' own roles."""

_VOLCANO = "scheduling.volcano.sh"
QUEUES = Access("get", _VOLCANO, "queues")
NODES = Access("get", "", "nodes")
PODS = Access("list", "", "pods")
"""Pods of all namespaces: for how many there are in the cluster."""
CLASSES = Access("get", "scheduling.k8s.io", "priorityclasses")
_EVERYWHERE = Access("list", _VOLCANO, "podgroups")

_KEY = re.compile(r"(?<![\w./])([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
"""``namespace/name`` in a sentence; not what goes on after a dot, as ``kubernetes.io/hostname`` does."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_COUNTS = re.compile(r"\d+/\d+")
_CUT = re.compile(r"\S*\.\.\.$")
"""The last word of a sentence that was cut: the key that it began may not be recognizable."""
_ANOTHER = "another namespace's"


class Hidden(Exception):
    """It is not for who asks; the message says what right it takes."""


class Unasked(NamedTuple):
    """Rights that an answer depends on and that nobody asked about yet; ``named``: who asks chose them."""

    accesses: frozenset[Access]
    named: bool


class PartialSight:
    """What somebody may see: jobs with their pods in namespaces in which they may list PodGroups, queues and nodes
    where they may get these.

    ``known`` says of rights whether they have them. One that is not there counts as one that they do not have, and is
    ``unasked``: an answer made with it has to be made again.
    """

    def __init__(self, name: str, known: Mapping[Access, bool]) -> None:
        self.name = name
        self._known = dict(known)
        self._named = False
        self._own = ""
        self.unasked: set[Access] = set()

    def missing(self) -> Unasked:
        """What has to be asked about."""
        return Unasked(frozenset(self.unasked), self._named)

    def may(self, access: Access) -> bool:
        """Whether they have a right."""
        if access not in self._known:
            self.unasked.add(access)
        return self._known.get(access, False)

    def sees(self, kind: str, key: str) -> bool:
        """Whether an object may be told of; a pod is where its job is."""
        if kind in ("PodGroup", "Pod"):
            return self._sees_namespace(key.partition("/")[0])
        if kind in ("Queue", "Node"):
            return self.may(QUEUES if kind == "Queue" else NODES)
        return False

    def _sees_namespace(self, namespace: str) -> bool:
        if self._is_told(namespace):
            return True
        if _EVERYWHERE not in self._known:  # most often that settles it
            return self.may(_EVERYWHERE)
        return self.may(_EVERYWHERE._replace(namespace=namespace))

    def _is_told(self, namespace: str) -> bool:
        """Whether they are known to see a namespace, be it for a job of it that they asked for."""
        known = self._known.get
        listed = known(_EVERYWHERE, False) or known(_EVERYWHERE._replace(namespace=namespace), False)
        return listed or namespace == self._own

    def expect(self, access: Access, what: str) -> None:
        """Raises Hidden where they do not have a right that a question takes."""
        if not self.may(access):
            raise Hidden(f"{self.name} may not see {what}: it takes {access}, or {PAGE}")

    def expect_job(self, namespace: str) -> None:
        """Raises Hidden where they may not see the jobs of a namespace that they name."""
        if not _NAMESPACE.fullmatch(namespace):  # nobody is asked about it
            raise Hidden(f"{namespace[:63]!r} can be no namespace, so {self.name} may see nothing of it")
        access = Access("get", _VOLCANO, "podgroups", namespace)
        if self.may(access):
            self._own = namespace
            return
        self._named = access in self.unasked
        raise Hidden(f"{self.name} may not see jobs of namespace {namespace}: it takes {access}, or {PAGE}")

    def without_others(self, text: str) -> str:
        """A sentence in which nothing is named that is of a namespace they are not known to see."""

        def told(found: re.Match[str]) -> str:
            is_count = _COUNTS.fullmatch(found[0]) is not None
            return found[0] if is_count or self._is_told(found[1]) else _ANOTHER

        return _KEY.sub(told, _CUT.sub("...", text))

    def withheld(self) -> list[str]:
        """What answers leave out, and what right shows it."""
        left_out = {
            "jobs of other namespaces": (_EVERYWHERE, " there"),
            "queues": (QUEUES, ""),
            "nodes": (NODES, ""),
        }
        return [
            f"left out: {what} (it takes {access}{where})"
            for what, (access, where) in left_out.items()
            if not self._known.get(access, False)
        ]

    def nothing(self, what: str) -> str:
        """That they may see nothing of something, and what it takes."""
        return (
            f"{self.name} may see nothing of {what}: it takes {_EVERYWHERE} in a namespace that has jobs, {QUEUES},"
            f" {NODES}, or for everything {PAGE}"
        )
