"""Kubernetes' own programs, built once from the pinned module in ``go/kubernetes`` and kept outside of the tree.

``python -m tests.real.binaries`` builds what is missing (five minutes and more on two cores, cold).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

MODULE = Path(__file__).resolve().parent / "go" / "kubernetes"
PROGRAMS = ("kube-apiserver", "kube-controller-manager")


class Missing(Exception):
    """A program that these tests drive is not there; the message says how to get it."""


def version() -> str:
    """The version of Kubernetes that the module pins, such as v1.36.1."""
    found = re.search(r"^(?:require|\t)\s*k8s\.io/kubernetes (v\S+)", (MODULE / "go.mod").read_text(), re.MULTILINE)
    assert found, "go.mod requires k8s.io/kubernetes"
    return found[1]


def folder() -> Path:
    """Where the programs of these very versions are kept."""
    text = b"".join((MODULE / name).read_bytes() for name in ("go.mod", "go.sum"))
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return cache / "vcd" / "real" / hashlib.sha256(text).hexdigest()[:16]


def kubernetes(name: str) -> Path:
    """One of ``PROGRAMS``. Raises Missing."""
    path = folder() / name
    if not path.is_file():
        raise Missing(f"{name} {version()} is not built: make real-tools")
    return path


def installed(name: str, package: str) -> Path:
    """A program on PATH. Raises Missing, naming Debian's package."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not on PATH (Debian: {package}): make real-tools")
    return Path(found)


def build() -> None:
    """Build what is missing. Raises Missing where there is no Go, CalledProcessError where it fails."""
    into = folder()
    wanted = [name for name in PROGRAMS if not (into / name).is_file()]
    if not wanted:
        return
    go = shutil.which("go")
    if go is None:
        raise Missing(f"go is not on PATH: {', '.join(wanted)} {version()} is built with Go 1.26 or later")
    into.mkdir(parents=True, exist_ok=True)
    for name in wanted:
        print(f"building {name} {version()} into {into}", flush=True)  # noqa: T201 - what make shows meanwhile
        partial = into / f".{name}-{os.getpid()}"
        stamp = f"-s -w -X k8s.io/component-base/version.gitVersion={version()}"
        package = f"k8s.io/kubernetes/cmd/{name}"
        command = [go, "build", "-mod=readonly", "-ldflags", stamp, "-o", str(partial), package]
        subprocess.run(command, cwd=MODULE, check=True)
        partial.replace(into / name)


if __name__ == "__main__":
    try:
        build()
    except Missing as error:
        sys.exit(str(error))
