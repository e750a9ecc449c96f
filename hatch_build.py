"""What a build is called: by its tag in git, else by vcd/model/version.py, as of a clone without tags.

A build without git, such as the image's, is told by the variable VCD_VERSION (`make image`); an sdist says its version
itself. A wheel holds it in vcd/model/_version.py, so that `vcd --version` and each session's
record tell what was built; a checkout has no such file.
"""

from __future__ import annotations

import os
import re
import subprocess
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

ROOT = Path(__file__).resolve().parent
TAG = re.compile(r"v(\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)-(\d+)-g([0-9a-f]+)(-dirty)?")


def stated() -> str:
    """The version that the code states: of the next tag."""
    found = re.search(r'STATED = "([^"]+)"', (ROOT / "vcd" / "model" / "version.py").read_text(encoding="utf-8"))
    if found is None:
        raise ValueError('vcd/model/version.py: no line STATED = "..."')
    return found[1]


def version() -> str:
    """``0.2.0`` at the tag v0.2.0, ``0.2.0.post3+g1a2b3c4`` three commits later; ``0.2.0+g1a2b3c4.dirty`` where files
    differ from what is committed."""
    if told := os.environ.get("VCD_VERSION"):
        return told
    command = ["git", "-C", str(ROOT), "describe", "--tags", "--long", "--dirty", "--match", "v[0-9]*"]
    try:
        described = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):  # no git, no repository, or no tag
        return stated()
    found = TAG.fullmatch(described)
    if found is None or not (ROOT / ".git").exists():  # a copy within another repository
        return stated()
    tag, commits, commit, dirty = found.groups()
    release = tag if commits == "0" else f"{tag}.post{commits}"
    return release if (commits, dirty) == ("0", None) else f"{release}+g{commit}{'.dirty' if dirty else ''}"


class VersionFile(BuildHookInterface):  # type: ignore[type-arg]
    """Puts vcd/model/_version.py into a wheel; not into an editable one, whose checkout goes on."""

    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called before a wheel is built; ``version`` is how: standard or editable."""
        if version != "standard":
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "_version.py"
        file.write_text(f'BUILT = "{self.metadata.version}"\n', encoding="utf-8")
        build_data["force_include"][str(file)] = "vcd/model/_version.py"
