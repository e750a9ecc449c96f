"""The wheel: what is in it, that it runs as another user from a tree that it cannot write, and installs alone."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.waiting import WAIT_LIMIT

ROOT = Path(__file__).resolve().parents[2]
NOBODY = 65534


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel, built from the source distribution, which is built from a copy of what the repository ships."""
    source, dist = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("dist")
    for name in ("vcd", "migrations"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE", "CHANGELOG.md", "constraints.txt"):
        shutil.copy(ROOT / name, source)
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", str(dist), str(source))
    (found,) = dist.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def environment(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an empty environment into which the wheel was installed with what it needs, as docs say it."""
    return made(tmp_path_factory.mktemp("environment"), f"{wheel}[s3]", "constraints.txt")


def made(folder: Path, what: str, constraints: str) -> Path:
    """The Python of a new environment with a distribution in it, from the package index."""
    run(sys.executable, "-m", "venv", str(folder))
    python = folder / "bin" / "python"
    run(str(python), "-m", "pip", "install", "-q", "-c", str(ROOT / constraints), what)
    return python


@pytest.fixture(scope="module")
def names(wheel: Path) -> set[str]:
    """The files in the wheel."""
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


@pytest.fixture(scope="module")
def tree(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The wheel installed in a folder that nobody may write."""
    folder = tmp_path_factory.mktemp("installed") / "tree"
    run(sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--target", str(folder), str(wheel))
    set_modes(folder, writable=False)
    yield folder
    set_modes(folder, writable=True)


def test_it_installs_the_command_and_kubectls_plugin(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (each for each in archive.namelist() if each.endswith("entry_points.txt"))
        scripts = archive.read(name).decode()
    assert {"vcd = vcd.cli:main", "kubectl-vcd = vcd.cli.kubectl:main"} <= set(scripts.splitlines())


@pytest.mark.external
def test_it_runs_in_an_empty_environment(environment: Path, wheel: Path) -> None:
    """With what its metadata says that it needs, and nothing that the tests have beside it."""
    run(str(environment), "-m", "pip", "check")
    folder = environment.parent
    assert wheel.name.split("-")[1] in run(str(folder / "vcd"), "--version", cwd=folder)
    planned = run(str(folder / "vcd"), "plan", "-f", str(ROOT / "examples" / "gang.yaml"), cwd=folder)
    assert "default/train  node-a (2 pods), node-b" in planned
    assert "explain" in run(str(folder / "kubectl-vcd"), "--help", cwd=folder)
    run(str(environment), "-c", "import vcd.eventlog.archive.stores, botocore", cwd=folder)


@pytest.mark.external
def test_its_sbom_says_what_it_is_of(environment: Path, tmp_path: Path) -> None:
    """By the options that the Makefile and the Dockerfile give."""
    program = made(tmp_path / "sbom", "cyclonedx-bom", "deploy/sbom.txt").parent / "cyclonedx-py"
    options = "environment --pyproject pyproject.toml --output-reproducible --of JSON -o"
    for file in ("Makefile", "deploy/Dockerfile"):
        assert f"cyclonedx-py {options} " in (ROOT / file).read_text()
    written = tmp_path / "vcd.cdx.json"
    run(str(program), *options.split(), str(written), str(environment), cwd=ROOT)
    document = json.loads(written.read_text())
    root = document["metadata"]["component"]
    needed = next(each["dependsOn"] for each in document["dependencies"] if each["ref"] == root["bom-ref"])
    assert root["name"] == "vcd-scheduler"
    assert {name.partition("==")[0] for name in needed} >= {"aiohttp", "numpy", "msgspec"}


def set_modes(folder: Path, writable: bool) -> None:
    """Give all write permissions in `folder` to its owner, or take them from everybody."""
    for path in [folder, *folder.rglob("*")]:
        mode = path.stat().st_mode & 0o555
        path.chmod(mode | 0o200 if writable else mode)


def run(*command: str, cwd: Path | None = None, env: dict[str, str] | None = None) -> str:
    """The standard output of a command that must end well."""
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, check=False, timeout=WAIT_LIMIT)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def as_nobody(tree: Path, *command: str) -> str:
    """Run a command on the installed tree as a user that owns nothing.

    Root becomes that user with one capability, to read: the interpreter may lie where only root can look.
    """
    drop: list[str] = []
    if os.geteuid() == 0:
        setpriv = shutil.which("setpriv")
        assert setpriv, "setpriv (util-linux) is needed to run as another user"
        capability = "-all,+dac_read_search"
        drop = [setpriv, f"--reuid={NOBODY}", f"--regid={NOBODY}", "--clear-groups", "--no-new-privs"]
        drop += [f"--inh-caps={capability}", f"--ambient-caps={capability}", f"--bounding-set={capability}"]
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(tree), "HOME": "/nonexistent", "LC_ALL": "C.UTF-8"}
    return run(*drop, *command, cwd=tree, env=env)


def files(tree: Path) -> set[str]:
    return {str(path.relative_to(tree)) for path in tree.rglob("*")}


def test_it_ships_the_marker_of_its_types(names: set[str]) -> None:
    assert "vcd/py.typed" in names


def test_it_ships_every_migration(names: set[str]) -> None:
    migrations = {f"vcd/eventlog/migrations/{path.name}" for path in (ROOT / "migrations").glob("*.sql")}
    assert migrations
    assert migrations <= names


def test_it_ships_the_custom_resources(names: set[str]) -> None:
    crds = {path.relative_to(ROOT).as_posix() for path in (ROOT / "vcd" / "embedded" / "crds").glob("*.yaml")}
    assert crds
    assert crds <= names


def test_it_ships_every_source_file(names: set[str]) -> None:
    assert {path.relative_to(ROOT).as_posix() for path in (ROOT / "vcd").rglob("*.py")} <= names


def test_it_ships_the_licence(names: set[str]) -> None:
    assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)


def test_it_ships_nothing_else(names: set[str]) -> None:
    assert {name.split("/")[0] for name in names if ".dist-info/" not in name} == {"vcd"}


def test_the_user_is_not_root_and_cannot_write_the_tree(tree: Path) -> None:
    program = (
        "import os, pathlib, sys\n"
        "try:\n"
        "    pathlib.Path('new').touch()\n"
        "except PermissionError:\n"
        "    print('refused', os.geteuid())\n"
    )
    refused, uid = as_nobody(tree, sys.executable, "-c", program).split()
    assert refused == "refused"
    assert int(uid) != 0


def test_the_installed_package_is_the_one_that_runs(tree: Path) -> None:
    path = as_nobody(tree, sys.executable, "-c", "import vcd; print(vcd.__file__)").strip()
    assert Path(path) == tree / "vcd" / "__init__.py"


def test_it_tells_its_version(tree: Path, wheel: Path) -> None:
    assert wheel.name.split("-")[1] in as_nobody(tree, str(tree / "bin" / "vcd"), "--version")


def test_it_shows_the_configuration_in_force(tree: Path) -> None:
    assert "allocate" in as_nobody(tree, str(tree / "bin" / "vcd"), "conf", "show")


def test_running_it_leaves_nothing_in_its_tree(tree: Path) -> None:
    before = files(tree)
    as_nobody(tree, str(tree / "bin" / "vcd"), "--version")
    assert files(tree) == before
