"""examples/launch as its reader uses it: installed as a distribution, found by its entry points, and run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.waiting import WAIT_LIMIT
from vcd.scheduling.framework.arguments import Argument, ArgumentError, parse_arguments

ROOT = Path(__file__).resolve().parents[2]
EXAMPLE = ROOT / "examples" / "launch"
NOON, NIGHT = "2026-11-21T12:00:00Z", "2026-11-21T23:30:00Z"


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the distribution installed in it, and nothing else."""
    folder = tmp_path_factory.mktemp("installed")
    source = folder / "source"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache"))
    return installed(source, folder / "site")


def installed(source: Path, site: Path) -> Path:
    """A distribution built and installed into a folder, without a network."""
    options = ("-q", "--no-deps", "--no-index", "--no-build-isolation", "--target", str(site))
    run("-m", "pip", "install", *options, str(source), site=None)
    return site


def run(*arguments: str, site: Path | None, code: int = 0, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run Python; with ``site`` the distribution is installed."""
    path = os.pathsep.join(str(each) for each in (site, ROOT) if each is not None)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=WAIT_LIMIT,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


def vcd(*arguments: str, site: Path | None, code: int = 0) -> subprocess.CompletedProcess[str]:
    return run("-m", "vcd", *arguments, site=site, code=code)


def planned(site: Path, now: str, conf: Path = EXAMPLE / "launch.conf") -> tuple[dict[str, Any], str]:
    """What ``vcd plan`` prints of the example's cluster: JSON, and what goes to standard error."""
    files = ("-f", str(EXAMPLE / "cluster.yaml"), "--scheduler-conf", str(conf))
    done = vcd("plan", *files, "--now", now, "-o", "json", site=site)
    return json.loads(done.stdout), done.stderr


def test_without_it_the_configuration_names_what_is_missing() -> None:
    done = vcd("conf", "check", str(EXAMPLE / "launch.conf"), site=None, code=1)
    assert "there is no action launch" in done.stdout
    assert "there is no plugin quiet-hours" in done.stdout


def test_installed_its_names_are_known(site: Path) -> None:
    vcd("conf", "check", str(EXAMPLE / "launch.conf"), site=site)


def test_its_arguments_are_checked(site: Path, tmp_path: Path) -> None:
    conf = tmp_path / "scheduler.conf"
    conf.write_text((EXAMPLE / "launch.conf").read_text() + "      quiet-hours.weight: much\n")
    done = vcd("conf", "check", str(conf), site=site, code=1)
    assert '"much": must be a number of at least 0' in done.stdout


def test_a_misspelt_name_of_it_is_guessed(site: Path, tmp_path: Path) -> None:
    conf = tmp_path / "scheduler.conf"
    conf.write_text((EXAMPLE / "launch.conf").read_text().replace("name: quiet-hours", "name: quiet-hour"))
    assert "did you mean quiet-hours?" in vcd("conf", "check", str(conf), site=site, code=1).stdout


def test_conf_show_lists_it_with_its_arguments(site: Path) -> None:
    shown = json.loads(vcd("conf", "show", str(EXAMPLE / "launch.conf"), "-o", "json", site=site).stdout)
    assert [action["name"] for action in shown["actions"]] == ["enqueue", "launch"]
    (plugin,) = [plugin for tier in shown["tiers"] for plugin in tier if plugin["name"] == "quiet-hours"]
    assert plugin["arguments"]["quiet-hours.weight"] == {"value": 1.0, "default": True}


def test_it_schedules(site: Path) -> None:
    """The busy node is avoided at noon; at night the quiet one is."""
    noon, errors = planned(site, NOON)
    assert errors == ""
    assert noon["binds"] == {"default/train-0": "node-b", "default/train-1": "node-c"}
    night, errors = planned(site, NIGHT)
    assert errors == ""
    assert night["binds"] == {"default/train-0": "node-b", "default/train-1": "node-a"}


def test_a_plugin_whose_score_is_broken_is_named_and_still_forbids(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    module = broken / "vcd_launch" / "quiet_hours.py"
    module.write_text(module.read_text().replace("return 100.0 * self._hours.left(node) / DAY", "return float('nan')"))
    night, errors = planned(broken, NIGHT)
    assert errors == "failed: quiet-hours: expected finite points at score awake.raw, got nan\n"
    assert night["binds"] == {"default/train-0": "node-b", "default/train-1": "node-a"}


def test_an_action_that_is_broken_is_named_and_left_out(site: Path, tmp_path: Path) -> None:
    broken = tmp_path / "site"
    shutil.copytree(site, broken)
    module = broken / "vcd_launch" / "launch.py"
    module.write_text(module.read_text().replace("rows[usage.pods[rows].argmin()]", "rows[0] + 7"))
    plan, errors = planned(broken, NOON)
    assert errors.startswith("failed: action launch: IndexError(")
    assert plan["binds"] == {}


def test_its_own_tests_pass(site: Path, tmp_path: Path) -> None:
    source = tmp_path / "launch"
    shutil.copytree(EXAMPLE, source, ignore=shutil.ignore_patterns("__pycache__", ".pytest_cache", "vcd_launch"))
    done = run("-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", site=site, cwd=source)
    assert " passed" in done.stdout


# --- docs/extending.md, docs/reference/plugin-api.md ------------------------------------------------------------------


def blocks(language: str) -> list[str]:
    """Return the blocks of both pages in a language, in order."""
    pages = "".join((ROOT / "docs" / name).read_text() for name in ("extending.md", "reference/plugin-api.md"))
    return re.findall(rf"^```{language}\n(.*?)^```", pages, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def ranked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The page's first plugin, installed as the page says."""
    source = tmp_path_factory.mktemp("rank")
    module, project, conf = blocks("python")[0], blocks("toml")[0], blocks("text")[0]
    (source / "my_rank.py").write_text(module)
    (source / "pyproject.toml").write_text(project)
    (source / "scheduler.conf").write_text(conf)
    installed(source, source / "site")
    return source


def test_the_first_plugin_of_the_page_works(ranked: Path, tmp_path: Path) -> None:
    cluster = tmp_path / "cluster.yaml"
    text = (EXAMPLE / "cluster.yaml").read_text().replace('quiet-hours: "22-6"', 'rank: "7"')
    cluster.write_text(text)
    conf = ("--scheduler-conf", str(ranked / "scheduler.conf"))
    done = vcd("plan", "-f", str(cluster), *conf, "-o", "json", site=ranked / "site")
    assert done.stderr == ""
    assert json.loads(done.stdout)["binds"] == {"default/train-0": "node-c", "default/train-1": "node-c"}


def test_the_arguments_of_the_page_are_checked(ranked: Path) -> None:
    shown = json.loads(vcd("conf", "show", str(ranked / "scheduler.conf"), "-o", "json", site=ranked / "site").stdout)
    (plugin,) = [plugin for tier in shown["tiers"] for plugin in tier if plugin["name"] == "rank"]
    assert plugin["arguments"] == {"rank.weight": {"value": 10.0, "default": False}}


def test_python_on_the_page_is_python() -> None:
    for block in blocks("python"):
        compile(block, "extending.md", "exec")
    assert len(blocks("python")) == 9


def test_the_pages_arguments_are_read_as_it_says() -> None:
    (block,) = (block for block in blocks("python") if block.startswith("arguments = "))
    found: dict[str, Any] = {"Argument": Argument}
    exec(block, found)
    given = {"rank.url": "http://r", "rank.cache": False, "rank.strict": True, "rank.tiers": [{"label": "a"}]}
    values = parse_arguments(found["arguments"], given)
    assert [(item["label"], item["rank"]) for item in values["rank.tiers"]] == [("a", 0)]
    told = [str(notice) for notice in values.notices]
    assert told == ["rank.cache has no effect: they are always kept", "rank.strict: new nodes stay empty"]
    with pytest.raises(ArgumentError, match=r"rank\.url"):
        parse_arguments(found["arguments"], {})
