"""The cluster of ``tests/e2e`` with a real API server behind it: the same daemons, wires, helpers and laws.

Each daemon is a pod of ``deploy/``'s ServiceAccount, by a token bound to that pod, and may do what ``deploy/``'s roles
allow. Who asked for what is read from the API server's audit log.
"""

from __future__ import annotations

import asyncio
import contextlib
import datetime
import json
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

import yaml

from tests.deploy.kustomize import apply, render
from tests.e2e.cluster import GROUPS, LEASES, QUEUES, Cluster, Daemon, Made, Wire, _Watched, until
from tests.embedded.disturbed import Call
from tests.real.api import Refused
from tests.real.controlplane import NAMESPACE, AuditLog, ControlPlane, kubeconfig
from tests.real.kubelet import Kubelet
from vcd.kube.api_errors import NoResponse
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import connect

Obj = dict[str, Any]
Note = Callable[[str, str, Obj], None]
ROOT = Path(__file__).resolve().parents[2]
ACCOUNT = "vcd-scheduler"
POD_NAME = "authentication.kubernetes.io/pod-name"
JOBS = "jobs.batch.volcano.sh"
LEFT = (
    (JOBS, "default"), ("pods", "default"), ("pods", NAMESPACE), (GROUPS, "default"), (LEASES, NAMESPACE),
    ("nodes", None), ("events", "default"), ("events", NAMESPACE), ("persistentvolumeclaims", "default"),
    ("persistentvolumes", None),
    ("storageclasses.storage.k8s.io", None), ("deployments.apps", "default"),
    ("poddisruptionbudgets.policy", "default"),
)  # fmt: skip
"""What a test may leave behind."""


def manifests(*components: str) -> list[Obj]:
    """deploy/base with some of its components."""
    found = render(ROOT / "deploy" / "base")
    for component in components:
        apply(ROOT / "deploy" / "components" / component, found)
    return list(found.values())


class Store:
    """The API server in the place of the embedded cluster's store; pods are told of as they come by the watch."""

    def __init__(self, plane: ControlPlane) -> None:
        api = plane.api
        self.create, self.get, self.list = api.create, api.get, api.list
        self.patch, self.update, self.delete = api.patch, api.update, api.delete
        self.notes: list[Note] = []

    def subscribe(self, resources: Iterable[str], note: Note) -> None:
        """Tell of each change of a pod."""
        assert list(resources) == ["pods"], "only pods are watched here"
        self.notes.append(note)


class RealCluster(Cluster):
    """Daemons and kubelets at a control plane that outlives them; ``async with`` starts and ends them."""

    plane: ControlPlane
    """Set on the class by the fixture ``plane``, since tests of tests/e2e know of none."""
    components: tuple[str, ...] = ("queue-gates",)
    """Those of deploy/ beside its base."""
    kept: frozenset[str] = frozenset({"system-cluster-critical", "system-node-critical"})
    """Queues and priority classes that are no test's."""

    def __init__(self, folder: Path, *, controllers: bool = True) -> None:
        self.folder = folder
        self.daemons: list[Daemon] = []
        self.store = Store(self.plane)  # type: ignore[assignment]
        self._watched = _Watched()
        self._pods: dict[str, Obj] = {}
        self._kubelets = controllers
        self._tasks: list[asyncio.Task[None]] = []
        self._audit = AuditLog(self.plane.audit)
        self._asked: list[Made] = []
        self.forbidden: list[str] = []
        self._clock = time.monotonic() - time.time()
        self._stack = contextlib.AsyncExitStack()
        self.store.subscribe(["pods"], self._note)
        self.clear()
        for manifest in self.manifests():
            if manifest["kind"] in {"ServiceAccount", "ClusterRole", "ClusterRoleBinding", "Role", "RoleBinding"}:
                self.plane.api.apply(manifest)
        self._make_queues(controllers)

    async def __aenter__(self) -> Self:
        connection = await connect(kubeconfig=str(self.plane.kubeconfig("admin")))
        client = await self._stack.enter_async_context(KubeClient(connection, qps=0))
        self._kubelet = Kubelet(client)
        began = asyncio.Event()
        self._tasks.append(asyncio.create_task(self._follow(client, began)))
        await began.wait()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            await self._end_daemons()
            for task in self._tasks:
                task.cancel()
            ended = await asyncio.gather(*self._tasks, return_exceptions=True)
            await self._kubelet.stop()
        finally:
            await self._stack.aclose()
        broken = [each for each in ended if not isinstance(each, asyncio.CancelledError)]
        if error is not None:
            print(f"what watched the pods ended with {broken}" if broken else "")  # noqa: T201
            self._show()
            return
        assert broken == []
        self.check_laws()

    def _show(self) -> None:
        for resource in (QUEUES, GROUPS, "pods"):
            for obj in self.store.list(resource):
                print(obj["metadata"]["name"], json.dumps(obj.get("status")))  # noqa: T201 - as the daemons' output
        super()._show()

    def manifests(self) -> list[Obj]:
        """Those of deploy/ whose roles its daemons have."""
        return manifests(*self.components)

    def _make_queues(self, controllers: bool) -> None:
        """Those that an installation has, for tests that do not leave them to the daemon."""
        if controllers:
            for name in ("root", "default"):
                self.store.create(QUEUES, {"metadata": {"name": name}, "spec": {"weight": 1}})

    def clear(self) -> None:
        """Take away what tests before this one left."""
        api = self.plane.api
        for resource, namespace in LEFT:
            api.clear(resource, namespace)
        for resource in (QUEUES, "priorityclasses.scheduling.k8s.io"):
            for obj in api.list(resource):
                if obj["metadata"]["name"] not in self.kept:
                    api.delete(resource, None, obj["metadata"]["name"])

    # --- what is watched ----------------------------------------------------------------------------------------------

    async def _follow(self, client: KubeClient, began: asyncio.Event) -> None:
        """Tell of each change of a pod, from the list on."""
        path, version = "/api/v1/pods", ""
        async for page in client.list_pages(path):
            version = page.resource_version
            for raw in page.items:
                self._tell("ADDED", json.loads(bytes(raw)))
        began.set()
        while True:
            with contextlib.suppress(NoResponse):  # a server that has much to do: from where it was, again
                async for lines in client.watch(f"{path}?watch=1&resourceVersion={version}", idle_timeout=3600):
                    for line in lines:
                        event = json.loads(line)
                        assert event["type"] in ("ADDED", "MODIFIED", "DELETED"), event
                        version = event["object"]["metadata"]["resourceVersion"]
                        self._tell(event["type"], event["object"])

    def _tell(self, event: str, pod: Obj) -> None:
        uid = pod["metadata"]["uid"]
        if event == "DELETED":
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = pod
        for note in self.store.notes:  # type: ignore[attr-defined]
            note(event, "pods", pod)
        if self._kubelets:
            self._kubelet.see(event, pod)

    def _pods_now(self) -> list[Obj]:
        return list(self._pods.values())

    # --- what was asked -----------------------------------------------------------------------------------------------

    @property
    def made(self) -> list[Made]:
        """The requests of the daemons that were answered, and the watches that began, in the order of their coming."""
        self._read_audit()
        return self._asked

    @property
    def refused(self) -> list[str]:
        """What daemons asked for and may not."""
        self._read_audit()
        return self.forbidden

    def _read_audit(self) -> None:
        for line in self._audit.new():
            made = self._made(line)
            if made is None:
                continue
            self._asked.append(made)
            if line.get("annotations", {}).get("authorization.k8s.io/decision") == "forbid":
                self.forbidden.append(f"{made.identity}: {made.call} {made.name}")
        self._asked.sort(key=lambda made: made.at)

    def _made(self, line: Obj) -> Made | None:
        names = line["user"].get("extra", {}).get(POD_NAME)
        watching = line["verb"] == "watch"
        if names is None or (watching and line["stage"] != "ResponseStarted"):
            return None
        received = datetime.datetime.fromisoformat(line["requestReceivedTimestamp"]).timestamp()
        ref = line.get("objectRef", {})
        resource = ".".join(filter(None, (ref.get("resource", ""), ref.get("apiGroup", ""))))
        call = Call(line["verb"], resource, ref.get("subresource", ""), ref.get("namespace"))
        return Made(received + self._clock, names[0].removeprefix("vcd-"), call, ref.get("name", ""))

    # --- daemons ------------------------------------------------------------------------------------------------------

    async def _credentials(self, name: str, number: int) -> tuple[Wire, Path]:
        wire = Wire("127.0.0.1", self.plane.port)
        await wire.start()
        wire.url = wire.url.replace("http:", "https:")
        path = self.folder / f"{number}-{name}.kubeconfig"
        user = {"token": self.token(name)}
        path.write_text(yaml.safe_dump(kubeconfig(wire.url, self.plane.authority.certificate, user)))
        return wire, path

    def token(self, name: str, audience: str = "") -> str:
        """The token that a daemon's pod has; for another audience than the API server if one is given."""
        return self.plane.api.token(NAMESPACE, ACCOUNT, audience=audience, pod=self._replica(name))

    def _replica(self, name: str) -> Obj:
        """The pod that a daemon is, for who reads its token: made when it first starts."""
        try:
            return self.store.get("pods", NAMESPACE, f"vcd-{name}")
        except Refused as error:
            assert error.status == 404, error
        spec = {"serviceAccountName": ACCOUNT, "containers": [{"name": "vcd-scheduler", "image": "vcd"}]}
        return self.store.create("pods", {"metadata": {"name": f"vcd-{name}", "namespace": NAMESPACE}, "spec": spec})

    @contextlib.contextmanager
    def faults(self, hook: Callable[..., Any]) -> Iterator[None]:
        """Nothing answers in a real server's place."""
        raise NotImplementedError("a real API server has no hooks")


class VolcanoCluster(RealCluster):
    """One where Volcano's controllers and webhooks work; the queues root and default are left to the daemon."""

    kept = RealCluster.kept | {"root", "default"}

    def _make_queues(self, controllers: bool) -> None:
        """None: the daemon does it, and the webhook lets nobody delete them."""

    async def until_leading(self, daemon: Daemon) -> None:
        """As elsewhere, and the queues are open, without which Volcano's webhook refuses every job."""
        await super().until_leading(daemon)
        await until(lambda: {"root", "default"} <= self.open_queues(), "the first queues are open")

    def open_queues(self) -> set[str]:
        """Those that Volcano's controller has looked at."""
        queues = self.store.list(QUEUES)
        return {each["metadata"]["name"] for each in queues if each.get("status", {}).get("state") == "Open"}
