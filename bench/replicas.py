"""The cost of one log for all replicas: ``python -m bench.replicas``.

The cluster and the gangs of ``bench.endtoend`` are scheduled by a ``vcd run`` alone, then with 1 and 2 followers. All
processes, including the API server, share this machine's processors. The wait of a session's calls for followers is
read from the leader's histogram, so a quantile is the upper bound of its bucket.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from bench.endtoend import GANG, NODES, PODS, line, start, tell
from bench.table import Row, row, show
from tests.e2e.usage import cpu_seconds
from tests.ports import free_port

FOLLOWERS = (0, 1, 2)
_ACCOUNT = "/api/v1/namespaces/volcano-system/serviceaccounts"
_LIMIT = 60.0
"""Timeout of a step in seconds."""


class Daemon:
    """A ``vcd run`` in a process of its own, observed through its metrics and probes."""

    def __init__(self, folder: Path, number: int, url: str, token: Path) -> None:
        self.log = folder / f"{number}.sqlite"
        self._metrics, self._health = (f"127.0.0.1:{free_port()}" for _ in range(2))
        flags = {
            "master": url,
            "event-log": self.log,
            "listen-address": self._metrics,
            "healthz-address": self._health,
            "view-address": "",
            "v": -1,
            "kube-api-qps": 2000,
            "kube-api-burst": 2000,
            "replicas-address": "127.0.0.1:0",
            "replicas-advertise": "127.0.0.1",
            "replicas-token-file": token,
        }
        command = [sys.executable, "-m", "vcd", "run", *(f"--{name}={value}" for name, value in flags.items())]
        self._process = subprocess.Popen(command, stdout=(folder / f"{number}.log").open("w"), stderr=subprocess.STDOUT)

    def metric(self, name: str) -> float:
        """Return the value of a series without labels; 0 if it is missing."""
        found = re.search(rf"^{name} (\S+)$", self._page(), re.MULTILINE)
        return float(found[1]) if found else 0.0

    def quantile(self, name: str, share: float) -> float:
        """Return the upper bound of the bucket that contains a quantile (``share``) of a histogram."""
        buckets = re.findall(rf'^{name}_bucket{{le="(\S+)"}} (\S+)$', self._page(), re.MULTILINE)
        most = float(buckets[-1][1])
        return next(float(bound) for bound, count in buckets if float(count) >= share * most)

    def is_ready(self) -> bool:
        """Return whether its readiness probe succeeds."""
        try:
            with urllib.request.urlopen(f"http://{self._health}/readyz", timeout=5) as answer:
                return bool(answer.status == 200)
        except OSError:
            return False

    def cpu(self) -> float:
        """Return the CPU seconds of all its threads so far."""
        return cpu_seconds(self._process.pid)

    def disk(self) -> int:
        """Return the bytes of its log."""
        return sum(file.stat().st_size for file in self.log.parent.glob(f"{self.log.name}*"))

    def stop(self) -> None:
        """Stop the process and wait for its end."""
        self._process.send_signal(signal.SIGTERM)
        self._process.wait(_LIMIT)

    def _page(self) -> str:
        try:
            with urllib.request.urlopen(f"http://{self._metrics}/metrics", timeout=5) as answer:
                return str(answer.read().decode())
        except ConnectionError:
            return ""


def run(node_count: int = NODES, pod_count: int = PODS) -> list[Row]:
    """Measure each number of followers and return the rows."""
    name = f"one log, {node_count:,} nodes, {pod_count:,} pods in gangs of {GANG}"
    return [row(name, None, ""), *(found for count in FOLLOWERS for found in _rows(count, node_count, pod_count))]


def _rows(followers: int, node_count: int, pod_count: int) -> Iterator[Row]:
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        server = stack.enter_context(_served(node_count, pod_count))
        url = line(server)["url"]
        token = _token(url, Path(folder) / "token")
        daemons: list[Daemon] = []
        for number in range(followers + 1):
            daemons.append(made := Daemon(Path(folder), number, url, token))
            stack.callback(made.stop)
            _until(made.is_ready)
            _until(lambda: daemons[0].metric("vcd_leader") == 1)
        _until(lambda: daemons[0].metric("vcd_event_log_followers") == followers)
        before = [one.cpu() for one in daemons]
        tell(server)
        binds = line(server)
        leader = daemons[0]
        _until(lambda: all(one.metric("vcd_event_log_sequence") == _settled(leader) for one in daemons))
        spent = [one.cpu() - began for one, began in zip(daemons, before, strict=True)]
        wait = "vcd_event_log_followers_wait_seconds"
        yield row(f"  {followers} followers: first to last bind", pod_count / binds["seconds"], "pods/s")
        yield row("    leader's CPU for a pod", 1000 * spent[0] / pod_count, "ms")
        if followers:
            yield row("    a follower's CPU for a pod", 1000 * sum(spent[1:]) / followers / pod_count, "ms")
            yield row(
                "    calls wait for a follower, half of sessions (at most)", 1000 * leader.quantile(wait, 0.5), "ms"
            )
            yield row("    99 of 100 sessions (at most)", 1000 * leader.quantile(wait, 0.99), "ms")
            yield row("    given up waiting", leader.metric("vcd_event_log_followers_late_total"), "")
            sent = leader.metric("vcd_event_log_sent_bytes_total")
            yield row("    sent to a follower for a pod", sent / followers / pod_count, "bytes")
        yield row("    a replica's disk", daemons[-1].disk() / 2**20, "MiB")
        tell(server)


def _settled(leader: Daemon) -> float:
    """Return the last sequence number once the log has not grown for half a second."""
    found = -1.0
    while found != (found := leader.metric("vcd_event_log_sequence")):
        time.sleep(0.5)
    return found


@contextmanager
def _served(node_count: int, pod_count: int) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "bench.endtoend", "serve", str(node_count), str(pod_count)]
    process = start(command, {**os.environ, "PYTHONPATH": str(Path.cwd())})
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def _token(url: str, file: Path) -> Path:
    """Write a token with audience vcd to a file, as the kubelet would."""
    _posted(f"{url}{_ACCOUNT}", {"metadata": {"name": "vcd-scheduler"}})
    wanted = {"kind": "TokenRequest", "apiVersion": "authentication.k8s.io/v1", "spec": {"audiences": ["vcd"]}}
    file.write_text(_posted(f"{url}{_ACCOUNT}/vcd-scheduler/token", wanted)["status"]["token"])
    return file


def _posted(url: str, body: dict[str, Any]) -> dict[str, Any]:
    request = urllib.request.Request(url, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=_LIMIT) as answer:
        found: dict[str, Any] = json.loads(answer.read())
        return found


def _until(condition: Callable[[], bool]) -> None:
    limit = time.monotonic() + _LIMIT
    while not condition():
        if time.monotonic() > limit:
            raise RuntimeError("a replica did not come so far in time")
        time.sleep(0.1)


if __name__ == "__main__":
    show(run())
