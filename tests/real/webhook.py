"""A validating webhook of a test: one that denies what ServiceAccounts write, one that never answers, one that nothing
listens for."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
from types import TracebackType
from typing import Any, Self

from aiohttp import web

from tests.real.controlplane import ControlPlane
from vcd.serving.connection_limits import listening

Obj = dict[str, Any]
CONFIGURATIONS = "validatingwebhookconfigurations.admissionregistration.k8s.io"
NAME = "gate.example.com"
DENIES, HANGS, GONE = "denies", "hangs", "gone"


class Webhook:
    """Asked for each write of a ``resource`` such as ``pods/binding``, as ``async with`` lasts.

    ``how`` is what it does. Its failure policy is Fail. ``namespace`` bounds it to one namespace.
    """

    def __init__(self, plane: ControlPlane, how: str, *resources: str, namespace: str = "") -> None:
        self._plane = plane
        self._how = how
        self._resources = resources
        self._namespace = namespace
        self._port = 0
        self._stack = contextlib.AsyncExitStack()
        self._ended = asyncio.Event()

    async def __aenter__(self) -> Self:
        if self._how == GONE:
            held = self._stack.enter_context(socket.socket())
            held.bind(("127.0.0.1", 0))  # nobody else gets the port, and nothing listens
            self._port = held.getsockname()[1]
        else:
            serving = self._plane.authority.issue("webhook")
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(serving.certificate, serving.key)
            runner = web.ServerRunner(web.Server(self._review), shutdown_timeout=1)
            self._port = await self._stack.enter_async_context(listening(runner, "127.0.0.1", 0, context))
        self._plane.api.create(CONFIGURATIONS, self._configuration())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._plane.api.delete(CONFIGURATIONS, None, "gate")
        self._ended.set()
        await self._stack.aclose()

    async def _review(self, request: web.BaseRequest) -> web.StreamResponse:
        asked = await request.json()
        if self._how == HANGS:
            await self._ended.wait()
        is_let_in = not asked["request"]["userInfo"]["username"].startswith("system:serviceaccount:")
        response = {"uid": asked["request"]["uid"], "allowed": is_let_in, "status": {"message": "the gate is shut"}}
        return web.json_response({"apiVersion": asked["apiVersion"], "kind": asked["kind"], "response": response})

    def _configuration(self) -> Obj:
        rules = [
            {
                "apiGroups": ["scheduling.volcano.sh" if resource == "podgroups" else ""], "apiVersions": ["*"],
                "operations": ["CREATE"] if resource == "pods/binding" else ["UPDATE"], "resources": [resource],
            }
            for resource in self._resources
        ]  # fmt: skip
        client = {"url": f"https://127.0.0.1:{self._port}/", "caBundle": self._plane.authority.bundle}
        selector = {"matchLabels": {"kubernetes.io/metadata.name": self._namespace}} if self._namespace else {}
        hook = {
            "name": NAME, "admissionReviewVersions": ["v1"], "sideEffects": "None", "failurePolicy": "Fail",
            "timeoutSeconds": 10, "rules": rules, "clientConfig": client, "namespaceSelector": selector,
        }  # fmt: skip
        return {"metadata": {"name": "gate"}, "webhooks": [hook]}
