"""Rights in a cluster, as roles allow them and reviews ask for them."""

from __future__ import annotations

from typing import NamedTuple


class Access(NamedTuple):
    """One thing that a role may allow: ``verb`` on a resource, in a ``namespace`` (empty: in all, or it is in none), or
    on the nonResourceURL ``path``."""

    verb: str
    group: str = ""
    resource: str = ""
    namespace: str = ""
    path: str = ""

    def attributes(self) -> dict[str, dict[str, str]]:
        """As a SubjectAccessReview's spec has it."""
        if self.path:
            return {"nonResourceAttributes": {"path": self.path, "verb": self.verb}}
        of = {"verb": self.verb, "group": self.group, "resource": self.resource, "namespace": self.namespace}
        return {"resourceAttributes": {name: text for name, text in of.items() if text}}

    def __str__(self) -> str:
        """In the words of RBAC: ``list podgroups.scheduling.volcano.sh in namespace a``."""
        if self.path:
            return f"{self.verb} on the nonResourceURL {self.path}"
        resource = f"{self.resource}.{self.group}" if self.group else self.resource
        return f"{self.verb} {resource}" + (f" in namespace {self.namespace}" if self.namespace else "")
