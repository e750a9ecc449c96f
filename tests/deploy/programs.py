"""Programs that `make external-tools` builds, and what the scheduler makes of the command line in a rendered pod."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

from tests.waiting import WAIT_LIMIT
from vcd.daemon.options import Options, normalise_arguments, parse_options


def go_tool(name: str) -> str:
    """A program on PATH, or where `go install` puts it; a machine without it fails here."""
    path = shutil.which(name)
    if path is None and (go := shutil.which("go")):
        done = subprocess.run([go, "env", "GOPATH"], capture_output=True, text=True, check=True, timeout=WAIT_LIMIT)
        path = shutil.which(name, path=str(Path(done.stdout.strip()) / "bin"))
    assert path, f"{name} is not on PATH: make external-tools"
    return path


def options_in(manifests: dict[Any, dict[str, Any]], namespace: str) -> Options:
    """What `vcd run` is told in the rendered Deployment or StatefulSet, by flags and environment, in a namespace."""
    (workload,) = [each for each in manifests.values() if each["kind"] in {"Deployment", "StatefulSet"}]
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    environ = {each["name"]: each.get("value", namespace) for each in container["env"]}
    assert container["command"][:2] == ["vcd", "run"]
    words = [
        re.sub(r"\$\((\w+)\)", lambda found: environ.get(found[1], found[0]), word)
        for word in (*container["command"][2:], *container["args"])
    ]
    given: dict[str, list[str]] = {}
    for word in normalise_arguments(words):
        flag, equals, text = word.removeprefix("--").partition("=")
        assert equals, f"{word} has no value"
        given.setdefault(flag, []).append(text)
    return parse_options(given, environ)
