"""Rights in a cluster, as RBAC rules grant them and SubjectAccessReviews query them."""

from __future__ import annotations

from typing import NamedTuple


class Access(NamedTuple):
    """One right: ``verb`` on a resource, in a ``namespace`` (empty: in all, or the resource is cluster-scoped), or on
    the nonResourceURL ``path``."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""

    def attributes(self) -> dict[str, dict[str, str]]:
        """Return the attributes of a SubjectAccessReview's spec."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        of = {"verb": self.verb, "group": self.group, "resource": self.resource, "namespace": self.namespace}
        return {"resourceAttributes": {name: text for name, text in of.items() if text}}

    def __str__(self) -> str:
        """Return the right in RBAC's terms: ``list podgroups.scheduling.volcano.sh in namespace a``."""
        if self.path:
            return f"{self.verb} on the nonResourceURL {self.path}"
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}" + (f" in namespace {self.namespace}" if self.namespace else "")
