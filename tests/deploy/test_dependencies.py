"""What the package asks for: no release with a published advisory, and what constraints.txt installs satisfies it."""

from __future__ import annotations

import tomllib
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parents[2]
FIXED = {
    "aiohttp": "3.14.5",  # GHSA-2g87-pp6c-29x5, GHSA-5wr8-gcqf-gqf3, and all before
    "anyio": "4.4",  # a race between threads that begin event loops
    "pytest": "9.0.3",  # CVE-2025-71176
    "pyyaml": "5.4",  # CVE-2020-14343
}
"""The first release without a known advisory, of those that ever had one."""


def required() -> list[Requirement]:
    """All that the package and its extras ask for."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"].values()
    return [Requirement(text) for texts in (project["dependencies"], *extras) for text in texts]


def pinned() -> dict[str, Version]:
    """What constraints.txt installs."""
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line]
    return {canonicalize_name(name): Version(version) for name, _, version in (line.partition("==") for line in lines)}


def test_each_has_a_lower_bound_that_admits_no_release_with_an_advisory() -> None:
    for requirement in required():
        bounds = [Version(each.version) for each in requirement.specifier if each.operator in (">=", "==")]
        assert len(bounds) == 1, requirement
        assert bounds[0] >= Version(FIXED.get(canonicalize_name(requirement.name), "0")), requirement


def test_the_constraints_satisfy_each() -> None:
    versions = pinned()
    assert [each for each in required() if versions[canonicalize_name(each.name)] not in each.specifier] == []


def test_nothing_is_said_of_what_nobody_asks_for() -> None:
    assert FIXED.keys() <= {canonicalize_name(requirement.name) for requirement in required()}
