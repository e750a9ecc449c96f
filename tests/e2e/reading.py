"""Replicas of one log in a cluster whose people ask from outside: pods for the daemons, a person and their rights."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml
from aiohttp import web

from tests.deploy.kustomize import render
from tests.deploy.rbac import Grant, allows, rule_grants
from tests.deploy.test_manifests import overlay_of, pod_of
from tests.e2e import processes
from tests.e2e.cluster import LEASES, NAMESPACE, ROOT, Daemon, Made, request_of
from tests.e2e.test_replicas import Replicas
from tests.embedded.disturbed import Call
from tests.waiting import WAIT_LIMIT
from vcd.embedded.patch import merge_patch
from vcd.kube.lease import ADDRESS

OPERATOR = "vcd-operator"
READER = "vcd-reader"
JANE = "jane"
_NEW = re.compile(r"; ([0-9,]+) events new$", re.MULTILINE)


def events_new(asked: subprocess.CompletedProcess[str]) -> int:
    """How many events a question says that it took over."""
    found = _NEW.search(asked.stderr)
    assert found, asked.stderr
    return int(found[1].replace(",", ""))


class Asked(Replicas):
    """A cluster in which ``jane`` asks, who is bound to the operator's roles and to nothing else."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.rendered = render(overlay_of(folder, "one-log"))
        self.rights: set[Grant] = {
            grant
            for (kind, namespace, name), role in self.rendered.items()
            if name == OPERATOR and kind in ("Role", "ClusterRole")
            for grant in rule_grants(role["rules"], namespace)
        }
        self.cache = folder / "cache"
        self.kubeconfig = folder / "jane.kubeconfig"
        self.server.permit = self._permits
        self.store.create("serviceaccounts", {"metadata": {"name": READER, "namespace": NAMESPACE}})
        self._pods = 0

    async def __aenter__(self) -> Asked:
        await super().__aenter__()
        assert self.server.tokens is not None
        self.server.tokens["token-of-jane"] = JANE
        self.kubeconfig.write_text(yaml.safe_dump(kubeconfig(self.server.url)))
        return self

    def _authorize(self, identity: str, call: Call, name: str) -> bool:
        if identity != JANE:
            return super()._authorize(identity, call, name)
        self.made.append(Made(time.monotonic(), identity, call, name))
        return allows(self.rights, request_of(call, name))

    def made_by(self, identity: str) -> list[Made]:
        """What somebody asked of the server."""
        return [made for made in self.made if made.identity == identity]

    @contextmanager
    def lease_says(self, address: str) -> Iterator[None]:
        """Let whoever reads the Lease read another address in it."""

        async def tell(request: web.Request) -> web.StreamResponse | None:
            if request.method != "GET" or not request.path.endswith("/leases/volcano"):
                return None
            (lease,) = self.store.list(LEASES, NAMESPACE)
            return web.json_response(merge_patch(lease, {"metadata": {"annotations": {ADDRESS: address}}}))

        with self.faults(tell):
            yield

    def _permits(self, asked: dict[str, Any]) -> bool:
        """What the roles of the component say of paths to whom they are bound; all else is permitted."""
        attributes = asked.get("nonResourceAttributes")
        if attributes is None or asked["user"] in {daemon.name for daemon in self.daemons}:
            return True
        bound = {
            binding["roleRef"]["name"]
            for (kind, _, _), binding in self.rendered.items()
            if kind == "ClusterRoleBinding"
            for subject in binding["subjects"]
            if asked["user"] == f"system:serviceaccount:{subject['namespace']}:{subject['name']}"
        }
        rules = [rule for name in bound for rule in self.rendered["ClusterRole", "", name]["rules"]]
        return any(
            attributes["path"] in rule.get("nonResourceURLs", []) and attributes["verb"] in rule["verbs"]
            for rule in rules
        )

    async def start(
        self, name: str, *flags: str, log: Path | None = None, short: bool = True, **environment: str
    ) -> Daemon:
        """Start a replica in a pod of its own, whose address is another one of this machine."""
        self._pods += 1
        annotations = pod_of(self.rendered)["metadata"]["annotations"]
        address, pod = f"127.0.0.{1 + self._pods}", f"vcd-scheduler-{self._pods}"
        self.store.create(
            "pods",
            {
                "metadata": {"name": pod, "namespace": NAMESPACE, "annotations": annotations},
                "spec": {"schedulerName": "default-scheduler", "containers": [{"name": "c", "image": "vcd"}]},
            },
        )
        running = {"status": {"phase": "Running", "podIP": address}}
        self.store.patch("pods", NAMESPACE, pod, running, "status")
        own = f"--replicas-address={address}:0", f"--replicas-advertise={address}"
        return await super().start(name, *own, *flags, log=log, short=short, **environment)

    async def vcd(self, *arguments: object, program: str = "vcd.cli") -> subprocess.CompletedProcess[str]:
        """Run a command of jane's, beside the servers of this process; never with a traceback."""
        main = f"{program}:main"
        environment = self._environment()
        asked = await asyncio.to_thread(processes.run, main, arguments, self.folder, environment, timeout=WAIT_LIMIT)
        assert "Traceback" not in asked.stderr, asked.stderr
        return asked

    def begun(self, *arguments: object, program: str = "vcd.cli", **options: Any) -> subprocess.Popen[str]:
        """A command of jane's that goes on until it is told to end."""
        return subprocess.Popen(**self._command(*arguments, program=program) | options)

    def _command(self, *arguments: object, program: str) -> dict[str, Any]:
        words = [sys.executable, "-c", f"from {program} import main; main()", *map(str, arguments)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        return {"args": words, "cwd": ROOT, "env": self._environment(), "text": True, **pipes}

    def _environment(self) -> dict[str, str]:
        environment = {**os.environ, "XDG_CACHE_HOME": str(self.cache), "KUBECONFIG": str(self.kubeconfig)}
        environment.pop("VCD_EVENT_LOG", None)
        return environment

    async def told(self, *arguments: object, program: str = "vcd.cli") -> Any:
        """What a command prints as JSON, less the time of the question."""
        asked = await self.vcd(*arguments, "-o", "json", program=program)
        assert asked.returncode == 0, asked.stderr
        return json.loads(timeless(asked.stdout))

    def kept(self) -> Path:
        """The file in which jane keeps what was read."""
        (state,) = self.cache.glob("vcd/*/state.json")
        return state.with_name(json.loads(state.read_text())["file"])


def timeless(printed: str) -> str:
    """JSON as printed, in which all times are 0 that depend on when the question was put: a live log is as of now."""
    names = r'"as_of"|"quiet"|"pending"|"begin": [^\n]*\n *"end"'  # the last is the end of what all causes are of
    return re.sub(rf"({names}): [^\n]*?(,?)$", r"\1: 0\2", printed, flags=re.MULTILINE)


def kubeconfig(url: str, namespace: str = "") -> dict[str, Any]:
    """Jane's, with the contexts ``prod`` and ``nowhere``, whose token nobody knows."""
    of = {"namespace": namespace} if namespace else {}
    users = {"jane": "token-of-jane", "stranger": "token-of-nobody"}
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url}}],
        "users": [{"name": name, "user": {"token": token}} for name, token in users.items()],
        "contexts": [
            {"name": "prod", "context": {"cluster": "c", "user": "jane", **of}},
            {"name": "nowhere", "context": {"cluster": "c", "user": "stranger"}},
        ],
        "current-context": "prod",
    }


def rows(path: Path) -> int:
    """The events in a file."""
    with sqlite3.connect(f"file:{path}?mode=ro", uri=True) as connection:
        ((count,),) = connection.execute("SELECT count(*) FROM event").fetchall()
    return int(count)
