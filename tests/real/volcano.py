"""Volcano's own controllers and webhooks at a control plane, by the roles and webhook configurations of its chart.

Volcano is not built here. The environment's VCD_VOLCANO names a folder with what a release of it has: ``bin/`` with
``vc-controller-manager``, ``vc-webhook-manager`` and ``vc-scheduler``, and ``chart/`` with its Helm chart.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.programs import go_tool
from tests.real.binaries import Missing
from tests.real.controlplane import NAMESPACE, ControlPlane, free_port, listens, wait_until

Obj = dict[str, Any]
FOLDER = "VCD_VOLCANO"
WORKLOADS = {"Deployment", "Job"}
WEBHOOKS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


def folder() -> Path:
    """What VCD_VOLCANO names. Raises Missing."""
    if not os.environ.get(FOLDER):
        raise Missing(f"{FOLDER} names no folder with bin/ and chart/ of a release of Volcano")
    return Path(os.environ[FOLDER])


def program(name: str) -> str:
    """One of Volcano's programs. Raises Missing."""
    path = folder() / "bin" / name
    if not path.is_file():
        raise Missing(f"{path} is not there: {FOLDER} names a folder with bin/ and chart/ of a release of Volcano")
    return str(path)


def chart(*words: str) -> list[Obj]:
    """The objects that Volcano's chart makes, its custom resources first."""
    command = [go_tool("helm"), "template", "volcano", str(folder() / "chart"), "-n", NAMESPACE, "--kube-version=1.36"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True, timeout=60)
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return sorted(found, key=lambda each: each["kind"] != "CustomResourceDefinition")


class Volcano:
    """Its controller-manager and webhook-manager, as processes that end with the control plane."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._port = free_port()
        self._chart = chart()

    def start(self) -> None:
        """Return once both work."""
        api = self._plane.api
        for manifest in self._chart:
            if manifest["kind"] not in WORKLOADS | WEBHOOKS:
                api.apply(manifest)
        for manifest in self._chart:
            if manifest["kind"] in WEBHOOKS:
                api.apply(self._at_loopback(manifest))
        self._start_webhooks()
        self._plane.run("vc-controller-manager", [
            program("vc-controller-manager"), f"--kubeconfig={self._kubeconfig('volcano-controllers')}",
            "--leader-elect=false", "--kube-api-qps=200", "--kube-api-burst=400", "--logtostderr",
            f"--healthz-address=127.0.0.1:{free_port()}", f"--listen-address=127.0.0.1:{free_port()}",
        ])  # fmt: skip

    def _start_webhooks(self) -> None:
        pair = self._plane.authority.issue("volcano-admission")
        process = self._plane.run("vc-webhook-manager", [
            program("vc-webhook-manager"), f"--kubeconfig={self._kubeconfig('volcano-admission')}",
            f"--tls-cert-file={pair.certificate}", f"--tls-private-key-file={pair.key}",
            f"--ca-cert-file={self._plane.authority.certificate}", "--listen-address=127.0.0.1", f"--port={self._port}",
            f"--webhook-url=https://127.0.0.1:{self._port}", self._argument("volcano-admission", "--enabled-admission"),
            "--logtostderr", f"--healthz-address=127.0.0.1:{free_port()}",
        ])  # fmt: skip
        wait_until(lambda: listens(self._port), 60, "vc-webhook-manager listens", process)

    def _kubeconfig(self, account: str) -> Path:
        return self._plane.kubeconfig(account, token=self._plane.api.token(NAMESPACE, account))

    def _argument(self, deployment: str, name: str) -> str:
        """What the chart gives one of its Deployments."""
        (found,) = (
            each for each in self._chart if (each["kind"], each["metadata"]["name"]) == ("Deployment", deployment)
        )
        (container,) = found["spec"]["template"]["spec"]["containers"]
        return next(word for word in container["args"] if word.startswith(f"{name}="))

    def _at_loopback(self, configuration: Obj) -> Obj:
        """The webhooks where the process is instead of behind a Service, which nothing routes to here."""
        for webhook in configuration["webhooks"]:
            path = webhook["clientConfig"]["service"]["path"]
            webhook["clientConfig"] = {
                "url": f"https://127.0.0.1:{self._port}{path}",
                "caBundle": self._plane.authority.bundle,
            }
        return configuration
