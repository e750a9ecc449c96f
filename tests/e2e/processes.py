"""Processes of vcd, forked from one that has its modules already: to import them is most of what a short one does.

A process has all that a test can see for its own: arguments, environment, folder, output, signals, exit code and the
interpreter's end. Only modules, and the seed of hashes, are those of the first process, which each worker of a test
run starts once: ``python -m tests.e2e.processes FD``, where FD is the socket by which it is asked.
"""

from __future__ import annotations

import atexit
import functools
import gc
import importlib
import io
import json
import os
import pkgutil
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO, Any, TextIO

from vcd.scheduling import actions, plugins

ROOT = Path(__file__).resolve().parents[2]
IMPORTED = (
    *("tests.e2e.daemon", "vcd.api", "vcd.cli.kubectl", "vcd.cli.run", "vcd.daemon.process", "vcd.view.page_server"),
    *("anyio._backends._asyncio", "kubernetes_asyncio.config", "jsonschema"),
)
"""What is imported before the forks, with all actions and plugins; a process imports the rest itself."""
_LARGEST = 1 << 20
_ASKING = threading.Lock()
"""Answers come in the order of questions."""


class Process:
    """The part of ``subprocess.Popen`` that tests use."""

    def __init__(self, pid: int, report: IO[bytes]) -> None:
        self.pid = pid
        self.returncode: int | None = None
        self._report = report

    def poll(self) -> int | None:
        """The exit code, negative for a signal; None while it runs."""
        return self._ended(0.0)

    def wait(self, timeout: float | None = None) -> int:
        """The exit code, once it has ended. Raises TimeoutExpired."""
        code = self._ended(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0.0)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal, unless it has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)

    def kill(self) -> None:
        """End it as power loss does."""
        self.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Tell it to end."""
        self.send_signal(signal.SIGTERM)

    def _ended(self, timeout: float | None) -> int | None:
        if self.returncode is None and select.select([self._report], [], [], timeout)[0]:
            self.returncode = int(self._report.read())
            self._report.close()
        return self.returncode


def start(
    main: str, arguments: Sequence[object], *, stdout: IO[bytes], stderr: IO[bytes], environment: Mapping[str, str]
) -> Process:
    """A process that calls ``main`` (``module:function``) as a program of these arguments, at the repository's root."""
    report, written = os.pipe()
    asked = {"main": main, "arguments": [*map(str, arguments)], "environment": dict(environment)}
    fds = [stdout.fileno(), stderr.fileno(), written]
    try:
        with _ASKING:
            socket.send_fds(_first(), [json.dumps(asked).encode()], fds)
            pid = int(_first().recv(_LARGEST))
    finally:
        os.close(written)
    return Process(pid, os.fdopen(report, "rb"))


def run(
    main: str, arguments: Sequence[object], folder: Path, environment: Mapping[str, str], timeout: float
) -> subprocess.CompletedProcess[str]:
    """Run such a process to its end; what it prints goes by files in ``folder``. Raises TimeoutExpired."""
    paths = [folder / f"{time.monotonic_ns()}-{name}" for name in ("stdout", "stderr")]
    with paths[0].open("wb") as stdout, paths[1].open("wb") as stderr:
        process = start(main, arguments, stdout=stdout, stderr=stderr, environment=environment)
    try:
        code = process.wait(timeout)
    finally:
        process.kill()
        process.wait()
    return subprocess.CompletedProcess([main, *map(str, arguments)], code, *(path.read_text() for path in paths))


@functools.cache
def _first() -> socket.socket:
    """The socket of the process of which all others are forks; it ends with this one."""
    ours, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    command = [sys.executable, "-m", "tests.e2e.processes", str(its.fileno())]
    environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}  # as vcd has it; threads are not forked
    process = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, pass_fds=[its.fileno()], cwd=ROOT, env=environment
    )
    its.close()

    def end() -> None:
        ours.close()
        process.wait()

    atexit.register(end)
    return ours


# --- in the processes -------------------------------------------------------------------------------------------------


def _import() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    for package in (actions, plugins):
        for found in pkgutil.iter_modules(package.__path__, f"{package.__name__}."):
            importlib.import_module(found.name)
    gc.freeze()  # a process need not look for garbage in what all share
    gc.unfreeze = lambda: None  # nor does a daemon when it starts


def _asked(channel: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """What the process shall do that this returns in, and its two outputs; other processes stay in here."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    while True:
        message, fds, _, _ = socket.recv_fds(channel, _LARGEST, 3)
        if not message:
            os._exit(0)
        if not os.fork():
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            if not (pid := os.fork()):
                channel.close()
                os.close(fds.pop())
                return json.loads(message), fds
            _report(channel, pid, fds)
        for fd in fds:
            os.close(fd)


def _report(channel: socket.socket, pid: int, fds: list[int]) -> None:
    """Tell which process it is and, once it has ended, its exit code."""
    channel.send(str(pid).encode())
    channel.close()
    for fd in (0, 1, 2, *fds[:-1]):
        os.close(fd)  # a reader of what the process prints shall see its end
    _, status = os.waitpid(pid, 0)
    os.write(fds[-1], str(os.waitstatus_to_exitcode(status)).encode())
    os._exit(0)


def _become(asked: dict[str, Any], fds: list[int]) -> None:
    """Take over what a process of its own would have got."""
    for fd, own in zip(fds, (1, 2), strict=True):
        os.dup2(fd, own)
        os.close(fd)
    # the streams were opened on /dev/null, which can seek; a pipe or a terminal cannot
    sys.stdout = sys.__stdout__ = _stream(1, "strict", os.isatty(1))
    sys.stderr = sys.__stderr__ = _stream(2, "backslashreplace", True)
    os.environ.clear()
    os.environ.update(asked["environment"])
    sys.path[1:1] = filter(None, asked["environment"].get("PYTHONPATH", "").split(os.pathsep))
    sys.argv = [asked["main"], *asked["arguments"]]


def _stream(fd: int, errors: str, by_line: bool) -> TextIO:
    file = os.fdopen(fd, "wb", closefd=False)
    return io.TextIOWrapper(file, "utf-8", errors, line_buffering=by_line)


if __name__ == "__main__":
    _import()
    request = _asked(socket.socket(fileno=int(sys.argv[1])))
    _become(*request)
    module, _, function = request[0]["main"].partition(":")
    getattr(importlib.import_module(module), function)()
