"""A class's name means one thing in the whole house."""

from __future__ import annotations

import re
from collections import Counter
from pathlib import Path

VCD = Path(__file__).resolve().parents[2] / "vcd"
_CLASS = re.compile(r"^class ([A-Za-z]\w*)", re.MULTILINE)
SHARED = {
    "NodeAffinity": 2,  # Kubernetes' field; the predicate of that name
    "Plan": 2,  # what a session decided, as the log has it and as a document
    "Problem": 2,  # of an object, told by a plugin; of a configuration
    "Queue": 2,  # Volcano's object; what a session sees of it
    "Statement": 2,  # as it is logged; as it is made
    "TopologyError": 2,  # of a Numatopology; of a job's annotations
}
"""Public names that several modules give to classes of theirs, and how many do."""
COMMANDS = ("bisect", "explain", "gate", "hypernodes", "replay", "sweep")
"""Modules of ``vcd/cli`` whose name the module with the command's function has, too: both have the same task."""


def test_no_other_public_name_is_given_to_two_classes() -> None:
    names = Counter(name for file in VCD.rglob("*.py") for name in _CLASS.findall(file.read_text()))
    assert {name: count for name, count in names.items() if count > 1} == SHARED


def test_no_two_modules_share_a_name_but_commands_and_their_functions() -> None:
    """Underscores do not distinguish two names: ``log_file`` and ``logfile`` are the same to a reader."""
    files = [file for file in VCD.rglob("*.py") if not file.stem.startswith("__")]
    names = Counter(file.stem.replace("_", "") for file in files)
    assert {name: count for name, count in names.items() if count > 1} == dict.fromkeys(COMMANDS, 2)
    assert {file.stem for file in (VCD / "cli").iterdir()} >= {*COMMANDS}
