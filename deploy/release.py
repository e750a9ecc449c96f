"""Checks whether the checkout can be released: ``python deploy/release.py --check`` exits with 1 and prints why not.

``--version`` prints the version of a build; the image is built without git, so the version is passed to it.
"""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parents[1]
sys.path.insert(0, str(ROOT))

from hatch_build import stated, version  # noqa: E402

_NAMED = 5
"""The most uncommitted files that are named."""
CHARTS = ("deploy/chart/vcd/Chart.yaml", "deploy/chart/vcd/charts/crds/Chart.yaml")


def elsewhere(wanted: str) -> Iterator[str]:
    """Yield the places that state another version than the code."""
    for chart in CHARTS:
        text = yaml.safe_load((ROOT / chart).read_text(encoding="utf-8"))
        for field in ("version", "appVersion"):
            if text.get(field, wanted) != wanted:
                yield f"{chart}: {field} is {text[field]}, not {wanted}"
    image = re.findall(r"image: vcd:(\S+)", (ROOT / "deploy" / "base" / "deployment.yaml").read_text(encoding="utf-8"))
    if image != [wanted]:
        yield f"deploy/base/deployment.yaml: the image is vcd:{', '.join(image)}, not vcd:{wanted}"
    if f"\n## {wanted}" not in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8"):
        yield f"CHANGELOG.md: no heading ## {wanted}"


def problems() -> Iterator[str]:
    """Yield the problems that prevent a release."""
    wanted = stated()
    if f"v{wanted}" not in _git("tag", "--points-at", "HEAD").split():
        yield f"no tag v{wanted} is here; a build of this is called {version()}"
    if changed := _git("status", "--porcelain").splitlines():
        more = f" and {len(changed) - _NAMED} more" if len(changed) > _NAMED else ""
        yield f"not as committed: {', '.join(line[3:] for line in changed[:_NAMED])}{more}; commit it, or take it away"
    elif version() != wanted:
        yield f"a build of this is called {version()}, not {wanted}"
    yield from elsewhere(wanted)


def _git(*words: str) -> str:
    """Return the output of git; empty if it fails."""
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, text=True, check=False).stdout


def main(arguments: list[str]) -> int:
    """Run a command and return the exit code."""
    if arguments == ["--version"]:
        sys.stdout.write(f"{version()}\n")
        return 0
    if arguments != ["--check"]:
        sys.stderr.write("usage: python deploy/release.py --check | --version\n")
        return 2
    found = list(problems())
    for problem in found:
        sys.stderr.write(f"{problem}\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
