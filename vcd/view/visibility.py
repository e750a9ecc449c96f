"""What a user who may not see the whole log may see of it, by the user's rights in the cluster."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import NamedTuple

from vcd.serving.access_rights import Access

PAGE = Access("get", path="/vcd/page")
"""The right to see everything. It is not a path below ``/api/``: Kubernetes' default roles let any authenticated user
get these."""

_VOLCANO = "scheduling.volcano.sh"
QUEUES = Access("get", _VOLCANO, "queues")
NODES = Access("get", "", "nodes")
PODS = Access("list", "", "pods")
"""Pods of all namespaces: needed to display how many the cluster has."""
CLASSES = Access("get", "scheduling.k8s.io", "priorityclasses")
_EVERYWHERE = Access("list", _VOLCANO, "podgroups")

_KEY = re.compile(r"(?<![\w./])([a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?)/[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?")
"""``namespace/name`` in a sentence; not the part after a dot, as in ``kubernetes.io/hostname``."""
_NAMESPACE = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
_COUNTS = re.compile(r"\d+/\d+")
_CUT = re.compile(r"\S*\.\.\.$")
"""The last word of a truncated sentence: a key in it may be unrecognizable."""
_ANOTHER = "another namespace's"


class Hidden(Exception):
    """The user may not see this; the message names the right that is needed."""


class UnreviewedRights(NamedTuple):
    """Rights that an answer depends on and that are not reviewed yet. ``named``: the user chose the object."""

    accesses: frozenset[Access]
    named: bool


class Visibility:
    """What a user may see: jobs and their pods in namespaces where the user may list PodGroups, and queues and nodes
    if the user may get them.

    ``known`` maps reviewed rights to whether the user has them. A right that is not reviewed counts as missing and is
    added to ``unreviewed``; an answer computed with it has to be computed again.
    """

    def __init__(self, name: str, known: Mapping[Access, bool]) -> None:
        self.name = name
        self._known = dict(known)
        self._named = False
        self._own = ""
        self.unreviewed: set[Access] = set()

    def missing(self) -> UnreviewedRights:
        """Return the rights to review."""
        return UnreviewedRights(frozenset(self.unreviewed), self._named)

    def may(self, access: Access) -> bool:
        """Return whether the user has a right."""
        if access not in self._known:
            self.unreviewed.add(access)
        return self._known.get(access, False)

    def sees(self, kind: str, key: str) -> bool:
        """Return whether the user may see an object; a pod is visible if its namespace is."""
        if kind in ("PodGroup", "Pod"):
            return self._sees_namespace(key.partition("/")[0])
        if kind in ("Queue", "Node"):
            return self.may(QUEUES if kind == "Queue" else NODES)
        return False

    def _sees_namespace(self, namespace: str) -> bool:
        if self._is_known_visible(namespace):
            return True
        if _EVERYWHERE not in self._known:  # the right for all namespaces settles most cases
            return self.may(_EVERYWHERE)
        return self.may(_EVERYWHERE._replace(namespace=namespace))

    def _is_known_visible(self, namespace: str) -> bool:
        """Return whether the user is known to see a namespace, also by having queried a job in it."""
        known = self._known.get
        listed = known(_EVERYWHERE, False) or known(_EVERYWHERE._replace(namespace=namespace), False)
        return listed or namespace == self._own

    def expect(self, access: Access, what: str) -> None:
        """Raise Hidden if the user lacks a right."""
        if not self.may(access):
            raise Hidden(f"{self.name} may not see {what}: it takes {access}, or {PAGE}")

    def expect_job(self, namespace: str) -> None:
        """Raise Hidden if the user may not see the jobs of a namespace that the question names."""
        if not _NAMESPACE.fullmatch(namespace):  # the API server is not queried about it
            raise Hidden(f"{namespace[:63]!r} can be no namespace, so {self.name} may see nothing of it")
        access = Access("get", _VOLCANO, "podgroups", namespace)
        if self.may(access):
            self._own = namespace
            return
        self._named = access in self.unreviewed
        raise Hidden(f"{self.name} may not see jobs of namespace {namespace}: it takes {access}, or {PAGE}")

    def without_others(self, text: str) -> str:
        """Return a sentence with the names of objects in other namespaces replaced."""

        def redact(found: re.Match[str]) -> str:
            is_count = _COUNTS.fullmatch(found[0]) is not None
            return found[0] if is_count or self._is_known_visible(found[1]) else _ANOTHER

        return _KEY.sub(redact, _CUT.sub("...", text))

    def withheld(self) -> list[str]:
        """Return what answers leave out, and the right that reveals it."""
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
        """Return that the user may see no part of something, and which rights reveal it."""
        return (
            f"{self.name} may see nothing of {what}: it takes {_EVERYWHERE} in a namespace that has jobs, {QUEUES},"
            f" {NODES}, or for everything {PAGE}"
        )
