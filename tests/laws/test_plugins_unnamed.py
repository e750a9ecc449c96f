"""Nothing outside the plugins names one, or a part of one: what others have to know of a plugin, it declares.

vc-scheduler's compiled-in configuration, which holds where there is no file, is the one text that names some.
"""

from __future__ import annotations

import ast
import functools
import re
from pathlib import Path

import pytest

from vcd.scheduling.framework import guard
from vcd.scheduling.framework.policy import DEFAULT_POLICY
from vcd.scheduling.framework.registry import plugins

VCD = Path(__file__).resolve().parents[2] / "vcd"
OURS = {name: plugin for name, plugin in plugins().items() if guard.is_ours(plugin)}
FILES = sorted(path for path in VCD.rglob("*.py") if not path.is_relative_to(VCD / "scheduling" / "plugins"))

WORDS = {
    "capacity": "a field of nodes and volumes",
    "gang": "a gate in reasons for waiting, and a kind of work in made workloads",
    "pdb": "kubectl's short name of PodDisruptionBudgets",
    "predicates": "an extension point",
    "priority": "a field of pods and jobs",
    "usage": "a question to the world outside",
}
"""Names of plugins that are words of something else, too, and where they are that."""
PLACES = {
    "capacity": ("embedded/", "scheduling/configuration_trial.py"),
    "gang": (
        "embedded/workload_generator.py",
        "daemon/reporting/autoscaler_hint.py",
        "daemon/reporting/status_reporter.py",
        "model/events.py",
        "scheduling/actions/allocate.py",
        "scheduling/framework/job_validity.py",
        "text/reason_sentences.py",
        "timetravel/why/job_waits.py",
        "timetravel/why/queuewaits.py",
    ),
    "pdb": ("embedded/resource_types.py",),
    "predicates": (),
    "priority": (
        "embedded/",
        "model/manifests.py",
        "model/podadmission.py",
        "scheduling/framework/order.py",
        "scheduling/session/views.py",
        "state/cluster_state.py",
        "state/podtable.py",
        "state/group_columns.py",
        "text/trial_templates.py",
        "timetravel/why/snapshotchanges.py",
        "timetravel/why/jobdifference.py",
        "timetravel/why/eviction_explanation.py",
        "timetravel/why/change_search.py",
        "view/questions.py",
    ),
    "usage": ("scheduling/framework/usage_samples.py", "state/snapshot.py"),
}

NAMES = re.compile(rf"(?<![\w-])({'|'.join(map(re.escape, sorted(OURS.keys() - WORDS)))})(?![\w-])")
"""A plugin's name that is no word of anything else."""


def declared_parts() -> dict[str, str]:
    """What plugins have of their own, and which has it: keys of arguments, series, annotations with quotas."""
    found: dict[str, str] = {}
    for name, plugin in OURS.items():
        keys = [each.key for each in plugin.arguments if re.search(r"[.-]", each.key)]
        series = [series for series, _ in plugin.series]
        found.update(dict.fromkeys((*keys, *series, *[quota.annotation for quota in plugin.quotas]), name))
    return found


PARTS = declared_parts()


@functools.cache
def texts(path: Path) -> list[tuple[int, str]]:
    """The literal texts of a file, docstrings included, and their lines."""
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    return [
        (node.lineno, node.value) for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def place(path: Path) -> str:
    return path.relative_to(VCD).as_posix()


def named_in(path: Path) -> set[str]:
    """The lines of a file that name a plugin or a part of one."""
    where = place(path)
    source = path.read_text(encoding="utf-8").replace(DEFAULT_POLICY, "\n" * DEFAULT_POLICY.count("\n"))
    lines = enumerate(source.splitlines(), 1)
    found = [(number, match[0]) for number, line in lines for match in NAMES.finditer(line)]
    for number, text in texts(path):
        if text in WORDS and not where.startswith(PLACES[text]):
            found.append((number, text))
        if text in PARTS:
            found.append((number, f"{text} of {PARTS[text]}"))
    return {f"{where}:{number}: {what}" for number, what in found}


def test_no_file_outside_names_a_plugin_or_a_part_of_one() -> None:
    assert {line for path in FILES for line in named_in(path)} == set()


def test_the_exceptions_are_needed() -> None:
    """A word stands wherever it is allowed."""
    used = {(text, place(path)) for path in FILES for _, text in texts(path) if text in WORDS}
    unused = {
        (word, where)
        for word, places in PLACES.items()
        for where in places
        if not any(text == word and found.startswith(where) for text, found in used)
    }
    assert unused == set()
    assert PLACES.keys() == WORDS.keys()


@pytest.mark.parametrize(
    "line",
    [
        'if plugin.name == "gang": pass',
        "# to capacity-card it is a limit",
        '"""As drf has it."""',
        'values["volumebinding.bindTimeoutSeconds"]',
        'names = {"vcd_extender_out": 1}',
        'metadata.annotations.get("volcano.sh/card.quota")',
        "import vcd.scheduling.plugins.sla",
    ],
)
def test_one_that_is_named_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: str) -> None:
    monkeypatch.setattr("tests.laws.test_plugins_unnamed.VCD", tmp_path)
    path = tmp_path / "view.py"
    path.write_text(f"{line}\n")
    assert len(named_in(path)) == 1
