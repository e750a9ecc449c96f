"""etcd, kube-apiserver and kube-controller-manager on loopback, as processes, with certificates of their own.

Authorization is RBAC and nobody is anonymous. Of the controllers those run that do not need kubelets that report: with
them nodes without a heartbeat would be lost after 40 seconds.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import ssl
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.kustomize import documents
from tests.ports import free_port
from tests.real.api import Api, Refused
from tests.real.binaries import KUBERNETES, installed
from tests.real.certificates import Authority, Pair, signing_key
from tests.waiting import WAIT_LIMIT

Obj = dict[str, Any]
ROOT = Path(__file__).resolve().parents[2]
NAMESPACE = "volcano-system"
CRDS = sorted((ROOT / "vcd" / "embedded" / "crds").glob("*.yaml"))
CONTROLLERS = (
    "serviceaccount-controller", "namespace-controller", "garbage-collector-controller", "deployment-controller",
    "replicaset-controller", "disruption-controller", "resourcequota-controller", "persistentvolume-binder-controller",
)  # fmt: skip
AUDIT = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        {"level": "Request", "resources": [{"group": "coordination.k8s.io", "resources": ["leases"]}]},
        {"level": "Request", "verbs": ["create"], "resources": [{"group": "", "resources": ["pods/binding"]}]},
        {"level": "Request", "verbs": ["delete"], "resources": [{"group": "", "resources": ["pods"]}]},
        {"level": "Metadata"},
    ],
}
"""One line for each answer, and for each watch when it begins and ends.

What is asked of Leases, binds and evictions is there with its body."""


def wait_until(holds: Callable[[], bool], what: str, process: subprocess.Popen[bytes]) -> None:
    """Return once it holds; fails after `WAIT_LIMIT`, or when the process that it is about has ended."""
    deadline = time.monotonic() + WAIT_LIMIT
    while not holds():
        assert process.poll() is None, f"{what}: ended with {process.returncode}"
        assert time.monotonic() < deadline, f"not within {WAIT_LIMIT:g} s: {what}"
        time.sleep(0.05)


class ControlPlane:
    """One cluster's servers; ``start`` and ``stop`` them. ``folder`` holds data, certificates and output."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = free_port()
        self.url = f"https://127.0.0.1:{self.port}"
        self.authority = Authority(folder)
        self.admin = self.authority.issue("admin", "system:masters")
        context = ssl.create_default_context(cafile=str(self.authority.certificate))
        context.load_cert_chain(self.admin.certificate, self.admin.key)
        self.api = Api(self.port, context)
        self._processes: list[subprocess.Popen[bytes]] = []

    # --- processes ----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Return once requests are answered and the custom resources are served."""
        try:
            self._start_apiserver(self._start_etcd())
            self._install()
            self._start_controllers()  # the garbage collector learns late of kinds that come after it
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End what was started, the last first."""
        for process in reversed(self._processes):
            process.send_signal(signal.SIGKILL)
            process.wait()
        self._processes.clear()
        self.api.close()

    def run(self, name: str, command: list[str], **environment: str) -> subprocess.Popen[bytes]:
        """Start a program that ends with the cluster; its output is in ``folder``."""
        with (self.folder / f"{name}.log").open("ab") as output:
            process = subprocess.Popen(
                command, stdout=output, stderr=output, stdin=subprocess.DEVNULL, cwd=self.folder,
                env={**os.environ, **environment},
            )  # fmt: skip
        self._processes.append(process)
        return process

    def _start_etcd(self) -> str:
        client, peer = (f"http://127.0.0.1:{free_port()}" for _ in range(2))
        process = self.run("etcd", [
            str(installed("etcd", "etcd-server")), "--name=one", f"--data-dir={self.folder / 'etcd'}",
            f"--listen-client-urls={client}", f"--advertise-client-urls={client}", f"--listen-peer-urls={peer}",
            f"--initial-advertise-peer-urls={peer}", f"--initial-cluster=one={peer}",
            "--quota-backend-bytes=4294967296",
        ])  # fmt: skip
        port = int(client.rpartition(":")[2])
        wait_until(lambda: listens(port), "etcd listens", process)
        return client

    def _start_apiserver(self, etcd: str) -> None:
        serving = self.authority.issue("kube-apiserver")
        self.keys = signing_key(self.folder / "service-accounts.key")
        policy = self.folder / "audit.yaml"
        policy.write_text(yaml.safe_dump(AUDIT))
        process = self.run("kube-apiserver", [
            str(KUBERNETES.program("kube-apiserver")), f"--etcd-servers={etcd}", "--bind-address=127.0.0.1",
            "--advertise-address=127.0.0.1", f"--secure-port={self.port}", "--endpoint-reconciler-type=none",
            f"--cert-dir={self.folder}", f"--tls-cert-file={serving.certificate}",
            f"--tls-private-key-file={serving.key}", f"--client-ca-file={self.authority.certificate}",
            "--anonymous-auth=false", "--authorization-mode=RBAC", "--service-cluster-ip-range=10.0.0.0/24",
            f"--service-account-issuer={self.url}", f"--service-account-key-file={self.keys}",
            f"--service-account-signing-key-file={self.keys}", f"--audit-policy-file={policy}",
            f"--audit-log-path={self.audit}", "--audit-log-mode=blocking",
            # its taint is taken away by a controller that needs kubelets
            "--disable-admission-plugins=TaintNodesByCondition", "--profiling=false",
        ])  # fmt: skip
        wait_until(self._ready, "kube-apiserver is ready", process)

    def _ready(self) -> bool:
        try:
            return bool(self.api.request("GET", "/readyz") == "ok")
        except (OSError, Refused):
            return False

    def _start_controllers(self) -> None:
        serving = self.authority.issue("kube-controller-manager", "system:masters")
        kubeconfig = self.kubeconfig("kube-controller-manager", pair=serving)
        process = self.run("kube-controller-manager", [
            str(KUBERNETES.program("kube-controller-manager")), f"--kubeconfig={kubeconfig}", "--leader-elect=false",
            f"--controllers={','.join(CONTROLLERS)}", f"--service-account-private-key-file={self.keys}",
            f"--secure-port={free_port()}", "--bind-address=127.0.0.1", f"--cert-dir={self.folder}",
            "--kube-api-qps=200", "--kube-api-burst=400",
        ])  # fmt: skip
        wait_until(self._has_account, "ServiceAccounts are made", process)

    def _install(self) -> None:
        """The namespace of schedulers and the custom resources, those that ``deploy/`` has."""
        self.api.create("namespaces", {"metadata": {"name": NAMESPACE}})
        self.install_kinds()

    def install_kinds(self) -> None:
        """Apply all CRDs and return once their kinds are served."""
        made = [manifest for path in CRDS for manifest in documents(path)]
        for manifest in made:
            self.api.apply(manifest)
        for manifest in made:
            name = manifest["metadata"]["name"]
            wait_until(lambda name=name: self.serves(name), f"{name} is served", self._processes[-1])

    def remove_kinds(self, *names: str) -> None:
        """Delete CRDs, with all their objects, and return once their kinds are not served."""
        for name in names:
            self.api.delete("customresourcedefinitions.apiextensions.k8s.io", None, name)
        for name in names:
            wait_until(lambda name=name: not self.serves(name), f"{name} is not served", self._processes[-1])

    def serves(self, name: str) -> bool:
        """Whether ``plural.group`` can be listed."""
        plural, _, group = name.partition(".")
        try:
            version = self.api.request("GET", f"/apis/{group}")["preferredVersion"]["groupVersion"]
            return bool(self.api.request("GET", f"/apis/{version}/{plural}?limit=1"))
        except Refused:
            return False

    def _has_account(self) -> bool:
        return all(self.api.list("serviceaccounts", namespace) for namespace in ("default", NAMESPACE))

    # --- who asks -----------------------------------------------------------------------------------------------------

    def kubeconfig(self, name: str, *, url: str = "", pair: Pair | None = None, token: str = "") -> Path:
        """A kubeconfig file of somebody with a certificate or a token; the administrator's without either."""
        shown = pair or (None if token else self.admin)
        user: Obj = {"token": token} if token else {}
        if shown is not None:
            user |= {"client-certificate": str(shown.certificate), "client-key": str(shown.key)}
        path = self.folder / f"{name}.kubeconfig"
        path.write_text(yaml.safe_dump(kubeconfig(url or self.url, self.authority.certificate, user)))
        return path

    # --- the audit log ------------------------------------------------------------------------------------------------

    @property
    def audit(self) -> Path:
        """What the API server was asked, by whom, and whether that was allowed: one JSON line each."""
        return self.folder / "audit.jsonl"


def kubeconfig(url: str, authority: Path, user: Obj) -> Obj:
    """The content of a kubeconfig with one context."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": url, "certificate-authority": str(authority)}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }


class AuditLog:
    """Reads the lines that were added since the last look."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._offset = path.stat().st_size if path.exists() else 0

    def new(self) -> Iterator[Obj]:
        """The lines that are whole by now."""
        with self._path.open("rb") as file:
            file.seek(self._offset)
            data = file.read()
        whole = data[: data.rfind(b"\n") + 1]
        self._offset += len(whole)
        for line in whole.splitlines():
            yield json.loads(line)


def listens(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex(("127.0.0.1", port)) == 0
