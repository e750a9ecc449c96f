"""The invariant "nobody evicted twice" finds a loop of evictions, and permits a new job to evict replacements once."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.simulation.mutants import ROOT

_PROGRAM = """
from tests.simulation import machine

machine.install()
from tests.simulation.night import outcomes, run_script, silence
from tests.simulation.script import Act, Script
from vcd.scheduling.session.session_immunity import SessionImmunity

silence()
CONF = '''\\
actions: "enqueue, allocate, preempt, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
- plugins:
  - name: predicates
  - name: proportion
'''
HIGH = {"priorityClassName": "urgent"}
GIVES = {"annotations": {"volcano.sh/preemptable": "true"}}


def urgent(at, name, pods=1, **runs):
    return Act(at, "submit", (name, pods, pods, 1, {"queue": "default", **HIGH}, {"spec": HIGH, **runs}))


def low(pods):
    return (
        Act(0.0, "add_node", ("node-0", pods, {})),
        Act(0.1, "add_class", ("urgent", 10_000, {})),
        Act(1.0, "submit_job", ("low", 1, [["all", 1, pods, 1]], {}, GIVES)),
    )


def printed(name, *acts):
    script = Script(55, 1, {"checkpoint-interval": ["20"]}, CONF, 28.0, 75.0, acts)
    (outcome,) = outcomes(lambda _: run_script(script), [0])
    print(name, sorted({violation.invariant for violation in outcome.violations}))


ENDS = {"annotations": {"vcd.sim/run-seconds": "3"}}
# The times are those of seed 55: which victims go first depends on them.
FIRST = ((6.682484791869872, "urgent-0"), (10.682484791869872, "urgent-2"), (12.682484791869872, "urgent-3"))
REFUSED = (*low(2), Act(0.5, "refuse_binds", ("default", "loop-0", 60.0)), urgent(8.0, "loop"))
SERVED = (*low(4), *(urgent(at, name, **ENDS) for at, name in FIRST), urgent(26.68248479186987, "urgent-last", 3))
printed("refused", *REFUSED)
printed("served", *SERVED)
SessionImmunity.covers = lambda self, task, preemptor: False
printed("planted", *REFUSED)
"""


@pytest.mark.timeout(300)  # fifteen seconds alone, and minutes on a busy machine
def test_a_loop_of_evictions_is_found_and_one_round_for_a_new_job_is_none() -> None:
    """A job whose bind is always refused evicts one pod; without immunity it evicts the replacements, too."""
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    command = [sys.executable, "-c", _PROGRAM]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == ["refused []", "served []", "planted ['nobody evicted twice']"], done.stderr
