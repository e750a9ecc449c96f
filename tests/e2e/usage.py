"""What a process uses, as Linux tells it (proc(5)); ``pid`` is a process's number, or ``self``."""

from __future__ import annotations

import os
from pathlib import Path


def cpu_seconds(pid: int | str) -> float:
    """Seconds of CPU of all its threads so far, in the program and in the kernel."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def memory(pid: int | str) -> int:
    """Bytes that are resident."""
    return _status(pid, "VmRSS")


def peak_memory(pid: int | str) -> int:
    """Bytes that were resident at the most so far."""
    return _status(pid, "VmHWM")


def handles(pid: int | str) -> int:
    """How many files and sockets it has open."""
    return sum(1 for _ in Path(f"/proc/{pid}/fd").iterdir())


def _status(pid: int | str, name: str) -> int:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith(name)) << 10
