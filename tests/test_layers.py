"""The arrows between the parts of vcd: the contracts of pyproject.toml hold, and they forbid every other arrow."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from itertools import pairwise, permutations
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
PARTS = (
    *("model", "state", "scheduling", "eventlog", "kube", "text", "diagnosis", "timetravel", "daemon", "embedded"),
    *("serving", "api", "view", "cli"),
)

# The arrows of the design, and of what lies below an arrow's end: state and model under scheduling, model under kube.
ARROWS = {
    "cli": {"api", "view", "daemon", "embedded", "timetravel", "diagnosis", "text", "scheduling", "model"},
    "view": {"timetravel", "text", "model", "serving"},
    "api": {"timetravel", "scheduling", "state", "model"},
    "daemon": {"kube", "serving", "diagnosis", "text", "eventlog", "scheduling", "state", "model"},
    "timetravel": {"diagnosis", "text", "eventlog", "scheduling", "state", "model"},
    "diagnosis": {"text", "eventlog", "scheduling", "state", "model"},
    "text": {"scheduling", "model"},
    "scheduling": {"state", "model"},
    "state": {"model"},
    "eventlog": {"model"},
    "kube": {"model"},
    "embedded": {"serving"},
    "serving": set(),
    "model": set(),
}
EMBEDDED_MAY_TAKE = (
    *("vcd.model.quantity", "vcd.model.selectors", "vcd.model.jsontext", "vcd.model.controllers"),
    "vcd.model.podgroups",
)
IMPURE = ("random", "asyncio", "aiohttp", "aiosqlite", "kubernetes_asyncio")


def lint_imports(tree: Path) -> tuple[int, str]:
    """Run the contracts on the `vcd` in `tree`; the exit code and the report, its lines not wrapped."""
    env = {**os.environ, "PYTHONPATH": str(tree), "COLUMNS": "500", "NO_COLOR": "1"}
    command = [sys.executable, "-c", "from importlinter.cli import lint_imports_command as run; run()"]
    done = subprocess.run(
        [*command, "--no-cache", "--no-logo"], cwd=tree, env=env, capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout + done.stderr


PLUGINS = "vcd.scheduling.plugins"
ROOMS = ("session", "search", "framework", "eviction", "actions")
"""The rooms of scheduling, the lowest first; plugins stand beside the actions."""
DAEMON_LAYERS = (
    ("watching", "metrics", "concurrency", "options", "policy_file", "structured_logging"),
    ("persistence",),
    ("replicas", "cycle", "faults", "outside"),
    ("leadership", "http", "reporting", "controllers", "reader"),
    ("quiescence", "shadow_mode"),
    ("service",),
    ("process",),
)
"""The packages and modules of the daemon, the lowest layer first."""
PLUGIN_FILES = ("one", "three", "two/__init__", "two/part", "two/other")


def write_tree(
    tree: Path,
    imports: dict[str, list[str]],
    plugins: dict[str, list[str]] | None = None,
    rooms: dict[str, list[str]] | None = None,
) -> None:
    """Write a vcd of empty parts under this project's contracts; `imports` gives each part's module the modules,
    `plugins` each file of scheduling/plugins, and `rooms` the module of each room of scheduling."""
    package = tree / "vcd"
    package.mkdir()
    (tree / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    (package / "__init__.py").touch()
    for part in PARTS:
        (package / part).mkdir()
        (package / part / "__init__.py").touch()
        lines = [f"import {name}\n" for name in imports.get(part, [])]
        (package / part / "module.py").write_text("".join(lines))
    for name in ("__init__", *PLUGIN_FILES):
        path = package / "scheduling" / "plugins" / f"{name}.py"
        path.parent.mkdir(exist_ok=True)
        path.write_text("".join(f"import {PLUGINS}.{imported}\n" for imported in (plugins or {}).get(name, [])))
    for room in ROOMS:
        (package / "scheduling" / room).mkdir()
        (package / "scheduling" / room / "__init__.py").touch()
        (package / "scheduling" / room / "other.py").write_text(f"import vcd.scheduling.{room}.module\n")
        lines = [f"import vcd.scheduling.{name}\n" for name in (rooms or {}).get(room, [])]
        (package / "scheduling" / room / "module.py").write_text("".join(lines))
    for name in EMBEDDED_MAY_TAKE:
        (tree / name.replace(".", "/")).with_suffix(".py").touch()


def broken(report: str, contract: str) -> bool:
    """Return whether a report lists the contract whose name begins so as broken."""
    return re.search(rf"^{contract}.* BROKEN", report, re.MULTILINE) is not None


def test_the_project_keeps_its_layers() -> None:
    code, report = lint_imports(ROOT)
    assert code == 0, report


def test_every_part_of_the_package_has_a_contract() -> None:
    ids = {c["id"] for c in tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]["contracts"]}
    found = {
        path.stem for path in (ROOT / "vcd").iterdir() if (path / "__init__.py").is_file() or path.suffix == ".py"
    } - {"__init__", "__main__"}
    assert found <= ids


def test_the_arrows_of_the_design_are_allowed(tmp_path: Path) -> None:
    imports = {part: [f"vcd.{target}.module" for target in sorted(targets)] for part, targets in ARROWS.items()}
    imports["embedded"] += EMBEDDED_MAY_TAKE
    imports["cli"].append("vcd")
    write_tree(tmp_path, imports)
    code, report = lint_imports(tmp_path)
    assert code == 0, report


@pytest.fixture(scope="module")
def report_of_all_other_arrows(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The report on a tree in which each part imports every part that it must not, and what is impure."""
    tree = tmp_path_factory.mktemp("other_arrows")
    imports = {
        part: [f"vcd.{other}.module" for other in PARTS if other != part and other not in ARROWS[part]]
        + ["vcd", *IMPURE]
        for part in PARTS
    }
    write_tree(tree, imports)
    code, report = lint_imports(tree)
    assert code == 1, report
    return report


def test_any_other_arrow_breaks_a_contract(report_of_all_other_arrows: str) -> None:
    others = [(importer, part) for importer, part in permutations(PARTS, 2) if part not in ARROWS[importer]]
    arrows = [f"vcd.{importer}.module -> vcd.{imported}.module" for importer, imported in others]
    assert [arrow for arrow in arrows if arrow not in report_of_all_other_arrows] == []


def test_only_cli_may_import_the_package_itself(report_of_all_other_arrows: str) -> None:
    found = set(re.findall(r"vcd\.(\w+)\.module -> vcd \(", report_of_all_other_arrows))
    assert found == {*PARTS} - {"cli"}


def test_what_decides_may_not_import_what_is_impure(report_of_all_other_arrows: str) -> None:
    arrows = [f"vcd.{part}.module -> {module}" for part in ("model", "state", "scheduling") for module in IMPURE]
    assert [arrow for arrow in arrows if arrow not in report_of_all_other_arrows] == []


def test_a_plugin_may_import_its_own_parts(tmp_path: Path) -> None:
    write_tree(tmp_path, {}, {"two/__init__": ["two.part", "two.other"]})
    code, report = lint_imports(tmp_path)
    assert code == 0, report


def test_any_other_arrow_among_plugins_breaks_a_contract(tmp_path: Path) -> None:
    write_tree(tmp_path, {}, {"one": ["two.part"], "two/part": ["three", "two.other"], "two/other": ["two.part"]})
    code, report = lint_imports(tmp_path)
    assert code == 1
    assert broken(report, "no plugin imports another")
    assert f"{PLUGINS}.one -> {PLUGINS}.two.part" in report
    assert f"{PLUGINS}.two.part -> {PLUGINS}.three" in report
    assert broken(report, "no circle among a plugin's parts")


def test_nobody_imports_a_plugin_or_its_parts_by_name(tmp_path: Path) -> None:
    importers = ("scheduling", "timetravel", "daemon")
    write_tree(tmp_path, {importer: [f"{PLUGINS}.one", f"{PLUGINS}.two.part"] for importer in importers})
    code, report = lint_imports(tmp_path)
    assert code == 1
    assert broken(report, "no plugin is imported by name")
    arrows = [f"vcd.{importer}.module -> {PLUGINS}.{name}" for importer in importers for name in ("one", "two.part")]
    assert [arrow for arrow in arrows if arrow not in report] == []


def test_a_room_of_scheduling_may_import_those_below(tmp_path: Path) -> None:
    below = {room: [f"{lower}.module" for lower in ROOMS[:position]] for position, room in enumerate(ROOMS)}
    write_tree(tmp_path, {}, {}, below)
    code, report = lint_imports(tmp_path)
    assert code == 0, report


def test_a_room_of_scheduling_may_import_nothing_above(tmp_path: Path) -> None:
    above = {lower: [f"{upper}.module"] for lower, upper in pairwise(ROOMS)}
    above["actions"] = ["plugins.one"]
    above["session"].append("decide")
    write_tree(tmp_path, {}, rooms=above)
    (tmp_path / "vcd" / "scheduling" / "module.py").rename(tmp_path / "vcd" / "scheduling" / "decide.py")
    code, report = lint_imports(tmp_path)
    assert code == 1
    assert broken(report, "the rooms of scheduling"), report
    arrows = [f".{room}.module -> vcd.scheduling.{name}" for room, names in above.items() for name in names]
    assert [arrow for arrow in arrows if arrow not in report] == []


def test_a_circle_within_a_room_breaks_a_contract(tmp_path: Path) -> None:
    write_tree(tmp_path, {}, rooms={room: [f"{room}.other"] for room in ROOMS[1:]})
    code, report = lint_imports(tmp_path)
    assert code == 1
    assert broken(report, "no modules import each other"), report
    assert set(re.findall(r"^No cycles are allowed in vcd\.scheduling\.(\w+)", report, re.MULTILINE)) == {*ROOMS[1:]}


def test_every_package_of_the_daemon_has_a_layer() -> None:
    found = {path.stem for path in (ROOT / "vcd" / "daemon").iterdir() if path.suffix == ".py" or path.is_dir()}
    assert found - {"__init__", "__pycache__"} == {name for layer in DAEMON_LAYERS for name in layer}


def write_daemon(tree: Path, imports: list[tuple[str, str]]) -> None:
    """Write a vcd whose daemon has one module for each package; `imports` are pairs of importer and imported."""
    write_tree(tree, {})
    for name in (name for layer in DAEMON_LAYERS for name in layer):
        lines = [f"import vcd.daemon.{imported}\n" for importer, imported in imports if importer == name]
        (tree / "vcd" / "daemon" / f"{name}.py").write_text("".join(lines))


def test_a_package_of_the_daemon_may_import_those_below(tmp_path: Path) -> None:
    below = [
        (upper, lower)
        for position, layer in enumerate(DAEMON_LAYERS)
        for upper in layer
        for lowers in DAEMON_LAYERS[:position]
        for lower in lowers
    ]
    write_daemon(tmp_path, below)
    code, report = lint_imports(tmp_path)
    assert code == 0, report


def test_a_package_of_the_daemon_may_import_none_beside_or_above(tmp_path: Path) -> None:
    above = [
        (lower, upper)
        for position, layer in enumerate(DAEMON_LAYERS)
        for lower in layer
        for upper in (*layer, *(name for layer in DAEMON_LAYERS[position + 1 :] for name in layer))
        if lower != upper
    ]
    write_daemon(tmp_path, above)
    code, report = lint_imports(tmp_path)
    assert code == 1
    assert broken(report, "the packages of the daemon"), report
    missing = [pair for pair in above if f"vcd.daemon.{pair[0]} -> vcd.daemon.{pair[1]}" not in report]
    assert missing == []
