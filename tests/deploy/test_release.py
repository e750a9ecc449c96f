"""What a release is called: by its tag, without one by the code, and everywhere the same."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
STATED = "from vcd.model.version import STATED; print(STATED)"


def run(*command: str, cwd: Path) -> str:
    """The output of a command that must end well."""
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def git(folder: Path, *words: str) -> None:
    run("git", "-c", "user.name=n", "-c", "user.email=n@example.com", "-c", "commit.gpgsign=false", *words, cwd=folder)


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """What the version and its check read, without git."""
    for name in ("hatch_build.py", ".gitignore", "vcd/model/version.py", "CHANGELOG.md", "deploy/release.py",
                 "deploy/base/deployment.yaml", "deploy/chart/vcd/Chart.yaml",
                 "deploy/chart/vcd/charts/crds/Chart.yaml"):  # fmt: skip
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, tmp_path / name)
    return tmp_path


def version(source: Path) -> str:
    return run(sys.executable, "-c", "import hatch_build; print(hatch_build.version())", cwd=source)


def stated() -> str:
    return run(sys.executable, "-c", STATED, cwd=ROOT)


def check(source: Path) -> tuple[int, str]:
    command = [sys.executable, "deploy/release.py", "--check"]
    done = subprocess.run(command, cwd=source, capture_output=True, text=True, check=False)
    return done.returncode, done.stderr


def test_without_git_or_a_tag_it_is_what_the_code_states(source: Path) -> None:
    assert version(source) == stated()
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    assert version(source) == stated()
    assert check(source)[0] == 1


def test_it_is_the_tags_and_tells_commits_after_it(source: Path) -> None:
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    git(source, "tag", "not-a-version")
    git(source, "tag", "v9.8.7rc1")
    assert version(source) == "9.8.7rc1"
    git(source, "commit", "-q", "--allow-empty", "-m", "two")
    tag, _, commit = version(source).partition(".post1+g")
    assert (tag, len(commit) >= 7) == ("9.8.7rc1", True)


def test_a_release_is_at_its_tag_and_all_places_name_it(source: Path) -> None:
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    git(source, "tag", f"v{stated()}")
    assert check(source) == (0, "")
    chart = source / "deploy" / "chart" / "vcd" / "Chart.yaml"
    chart.write_text(chart.read_text().replace(f"version: {stated()}", "version: 0.0.1"))
    code, said = check(source)
    assert (code, f"version is 0.0.1, not {stated()}" in said) == (1, True)


@pytest.mark.parametrize("changed", ["CHANGELOG.md", "vcd/new.py"], ids=["modified", "not committed"])
def test_a_release_has_nothing_that_its_tag_has_not(source: Path, changed: str) -> None:
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    git(source, "tag", f"v{stated()}")
    file = source / changed
    file.write_text(f"{file.read_text() if file.exists() else ''}more\n")
    code, said = check(source)
    assert (code, changed in said) == (1, True)


def test_a_build_of_changed_files_is_not_called_as_the_tag(source: Path) -> None:
    git(source, "init", "-q")
    git(source, "add", "-A")
    git(source, "commit", "-qm", "one")
    git(source, "tag", "v9.8.7")
    (source / "CHANGELOG.md").write_text("more\n")
    assert re.fullmatch(r"9\.8\.7\+g[0-9a-f]{7,}\.dirty", version(source))


def test_a_build_without_git_is_told_its_version(source: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VCD_VERSION", "9.8.7.post5+g1234567")
    assert version(source) == "9.8.7.post5+g1234567"
    assert run(sys.executable, "deploy/release.py", "--version", cwd=source) == "9.8.7.post5+g1234567"
