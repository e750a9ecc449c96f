"""Volcano's own controllers and webhooks at a control plane, by the roles and webhook configurations of its chart.

They are of the release that ``go/volcano`` pins, unless the environment's VCD_VOLCANO names a folder with the programs
of another one, ``vc-controller-manager``, ``vc-webhook-manager`` and ``vc-scheduler``, and its Helm chart, ``chart/``.
"""

from __future__ import annotations

import contextlib
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

from tests.deploy.programs import go_tool
from tests.ports import free_port
from tests.real.binaries import VOLCANO, Missing
from tests.real.controlplane import NAMESPACE, ControlPlane, listens, wait_until
from tests.waiting import WAIT_LIMIT

Obj = dict[str, Any]
FOLDER = "VCD_VOLCANO"
WORKLOADS = {"Deployment", "Job"}
WEBHOOKS = {"MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"}


def program(name: str) -> str:
    """One of Volcano's programs. Raises Missing."""
    return str(_found(name))


def _found(name: str) -> Path:
    given = os.environ.get(FOLDER)
    path = (Path(given) if given else VOLCANO.built) / name
    if not path.exists():
        raise Missing(f"{path} is not there: " + (f"{FOLDER} names its folder" if given else "make real-tools"))
    return path


def chart(*words: str) -> list[Obj]:
    """The objects that Volcano's chart makes, its custom resources first."""
    command = [go_tool("helm"), "template", "volcano", str(_found("chart")), "-n", NAMESPACE, "--kube-version=1.36"]
    done = subprocess.run([*command, *words], capture_output=True, text=True, check=True, timeout=WAIT_LIMIT)
    found = [each for each in yaml.safe_load_all(done.stdout) if each]
    return sorted(found, key=lambda each: each["kind"] != "CustomResourceDefinition")


SCHEDULER = f"system:serviceaccount:{NAMESPACE}:volcano-scheduler"
"""Who vc-scheduler is at the API server."""


def scheduler_conf() -> str:
    """The configuration of vc-scheduler in the chart."""
    found = {each["metadata"]["name"]: each for each in chart() if each["kind"] == "ConfigMap"}
    return str(found["volcano-scheduler-configmap"]["data"]["volcano-scheduler.conf"])


@contextlib.contextmanager
def scheduling(plane: ControlPlane, conf: Path) -> Iterator[None]:
    """vc-scheduler runs meanwhile, by the chart's arguments and rights, under a configuration of one's own."""
    kubeconfig = plane.kubeconfig("volcano-scheduler", token=plane.api.token(NAMESPACE, "volcano-scheduler"))
    process = plane.run("vc-scheduler", [
        program("vc-scheduler"), f"--kubeconfig={kubeconfig}", f"--scheduler-conf={conf}", "--leader-elect=false",
        f"--listen-address=127.0.0.1:{free_port()}", f"--healthz-address=127.0.0.1:{free_port()}", "--logtostderr",
        "--enable-healthz=true", "--enable-metrics=true", "--kube-api-qps=2000", "--kube-api-burst=2000",
        "--schedule-period=1s", "--node-worker-threads=20", "-v=1",
    ])  # fmt: skip
    try:
        yield
        assert process.poll() is None, f"vc-scheduler ended with {process.returncode}"
    finally:
        process.kill()
        process.wait()


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
        wait_until(lambda: listens(self._port), "vc-webhook-manager listens", process)

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
