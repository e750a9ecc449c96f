"""Who may see what: an API server with roles, as rights in RBAC's words, and a page that asks it."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from tests.embedded.disturbed import DisturbedServer
from tests.embedded.serving import serving
from tests.view.pages import Asker, asking
from vcd.daemon.http.security import ApiReviews
from vcd.embedded.status_errors import StatusError
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect
from vcd.serving.access_rights import Access

GROUPS = "podgroups.scheduling.volcano.sh"


class Roles:
    """Rights by user; one without a namespace is for all. Counts what is asked of it."""

    def __init__(self, rights: dict[str, list[str]]) -> None:
        self.rights = rights
        self.asked: list[tuple[str, str]] = []
        self.fails = False

    def permit(self, spec: dict[str, Any]) -> bool:
        """What a SubjectAccessReview's spec comes to."""
        if self.fails:
            raise StatusError(500, "InternalError", "told to fail")
        attributes = spec.get("resourceAttributes") or spec["nonResourceAttributes"]
        access = Access(**attributes)
        self.asked.append((spec["user"], str(access)))
        held = self.rights.get(spec["user"], [])
        return str(access) in held or str(access._replace(namespace="")) in held


@asynccontextmanager
async def guarded(path: Path, rights: dict[str, list[str]], **options: Any) -> AsyncIterator[tuple[Asker, Roles]]:
    """A page on all addresses, asked with the user's name as the token, and the roles behind its API server.

    The page asks for tokens with ``audiences``; ``made_for`` are those of users whose tokens are not for the API
    server, which with ``minds_audiences`` False knows nothing of audiences. Other options are the View's.
    """
    audiences, made_for = options.pop("audiences", ()), options.pop("made_for", {})
    minds = options.pop("minds_audiences", True)
    async with client_of(rights, path.parent) as (client, server):
        roles = Roles(rights)
        server.permit, server.audiences, server.minds_audiences = roles.permit, made_for, minds
        async with asking(path, "0.0.0.0", reviews=ApiReviews(client, audiences), **options) as asker:
            yield asker, roles


@asynccontextmanager
async def client_of(users: Collection[str], folder: Path) -> AsyncIterator[tuple[KubeClient, DisturbedServer]]:
    """The scheduler's client of an API server, which knows users by tokens that are their names."""
    async with serving(tokens={name: name for name in (*users, "vcd")}) as api:
        config = {
            "clusters": [{"name": "c", "cluster": {"server": api.server.url}}],
            "users": [{"name": "u", "user": {"token": "vcd"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        kubeconfig = folder / "kubeconfig"
        kubeconfig.write_text(json.dumps(config))
        async with KubeClient(await connect(str(kubeconfig))) as client:
            yield client, api.server
