"""Kubernetes' own programs and Volcano's, built once from the pinned modules in ``go/`` and kept outside of the tree.

``python -m tests.real.binaries`` builds what is missing (ten minutes and more on two cores, cold).
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

MODULES = Path(__file__).resolve().parent / "go"


class Missing(Exception):
    """A program that these tests drive is not there; the message says how to get it."""


@dataclass(frozen=True)
class Module:
    """Programs of one Go module, by name and package, built in the folder of ``go/`` that pins its version. A program
    named ``.test`` has the tests of its package.

    ``stamped`` is the variable that a release's version is linked into, ``chart`` where the module has a Helm chart.
    """

    name: str
    module: str
    programs: Mapping[str, str]
    stamped: str = ""
    chart: str = ""

    @property
    def pinned(self) -> Path:
        """The folder of go.mod and go.sum."""
        return MODULES / self.name

    @property
    def version(self) -> str:
        """The version that is pinned, such as v1.36.1."""
        required = rf"^(?:require|\t)\s*{re.escape(self.module)} (v\S+)"
        found = re.search(required, (self.pinned / "go.mod").read_text(), re.MULTILINE)
        assert found, f"{self.pinned}/go.mod requires {self.module}"
        return found[1]

    @property
    def built(self) -> Path:
        """Where the programs of these very versions are kept, and the chart."""
        text = b"".join((self.pinned / name).read_bytes() for name in ("go.mod", "go.sum"))
        cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
        return cache / "vcd" / "real" / hashlib.sha256(text).hexdigest()[:16]

    def program(self, name: str) -> Path:
        """One of its programs. Raises Missing."""
        path = self.built / name
        if not path.is_file():
            raise Missing(f"{name} {self.version} is not built: make real-tools")
        return path

    def build(self) -> None:
        """Build what is missing. Raises Missing where there is no Go, CalledProcessError where it fails."""
        wanted = [name for name in self.programs if not (self.built / name).is_file()]
        go = shutil.which("go")
        if wanted and go is None:
            raise Missing(f"go is not on PATH: {', '.join(wanted)} {self.version} is built with Go 1.26 or later")
        self.built.mkdir(parents=True, exist_ok=True)
        for name in wanted:
            print(f"building {name} {self.version} into {self.built}", flush=True)  # noqa: T201 - make shows it
            partial = self.built / f".{name}-{os.getpid()}"
            command = ("test", "-c") if name.endswith(".test") else ("build",)
            self._go(*command, "-mod=readonly", "-ldflags", self._linked(), "-o", str(partial), self.programs[name])
            partial.replace(self.built / name)
        if self.chart and not (self.built / "chart").is_dir():
            source = self._go("list", "-mod=readonly", "-m", "-f", "{{.Dir}}", self.module).strip()
            partial = self.built / f".chart-{os.getpid()}"
            shutil.copytree(Path(source) / self.chart, partial, copy_function=shutil.copyfile)
            partial.replace(self.built / "chart")

    def _linked(self) -> str:
        return "-s -w" + (f" -X {self.stamped}={self.version}" if self.stamped else "")

    def _go(self, *words: str) -> str:
        done = subprocess.run(["go", *words], cwd=self.pinned, check=True, stdout=subprocess.PIPE, text=True)
        return done.stdout


KUBERNETES = Module(
    "kubernetes",
    "k8s.io/kubernetes",
    {name: f"k8s.io/kubernetes/cmd/{name}" for name in ("kube-apiserver", "kube-controller-manager")},
    stamped="k8s.io/component-base/version.gitVersion",
)
VOLCANO = Module(
    "volcano",
    "volcano.sh/volcano",
    {f"vc-{name}": f"volcano.sh/volcano/cmd/{name}" for name in ("controller-manager", "webhook-manager", "scheduler")}
    | {"hypernode.test": "volcano.sh/volcano/test/e2e/hypernode"},
    chart="installer/helm/chart/volcano",
)


def installed(name: str, package: str) -> Path:
    """A program on PATH. Raises Missing, naming Debian's package."""
    found = shutil.which(name)
    if found is None:
        raise Missing(f"{name} is not on PATH (Debian: {package}): make real-tools")
    return Path(found)


if __name__ == "__main__":
    try:
        for each in (KUBERNETES, VOLCANO):
            each.build()
    except Missing as error:
        sys.exit(str(error))
