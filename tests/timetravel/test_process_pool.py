"""Parts of a work in several processes: results in order, failures in their place, nobody left behind."""

from __future__ import annotations

import multiprocessing
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from pathlib import Path

import pytest

from tests.timetravel.works import counting, endless
from vcd.timetravel.process_pool import _Shares, in_order

ROOT = Path(__file__).parents[2]
PARTS = [(0, 2), (3, 3), (4, 9), (10, 11), (12, 20)]


def test_results_come_in_the_order_of_the_parts() -> None:
    assert list(in_order(counting, PARTS, 2)) == list(range(21))


def test_what_has_come_is_told_at_once_whatever_is_given_when() -> None:
    told: list[int] = []
    assert list(in_order(counting, PARTS, 2, told.append)) == list(range(21))
    assert sorted(told) == sorted(last - first + 1 for first, last in PARTS)


@pytest.mark.parametrize(("parts", "processes"), [(7, 2), (2, 2), (9, 4), (5, 1)])
def test_each_process_has_parts_that_follow_each_other_and_then_the_last_of_others(parts: int, processes: int) -> None:
    shares = _Shares(parts, processes)
    own = [shares.next_of(0) for _ in range(parts // processes)]
    assert own == list(range(parts // processes))
    rest = [shares.next_of(0) for _ in range(parts - len(own))]
    assert sorted([*own, *rest]) == list(range(parts))
    assert rest[:1] in ([], [parts - 1], [parts // processes], [2 * parts // processes - 1])
    assert shares.next_of(processes - 1) is None


def test_a_part_that_fails_is_told_after_what_comes_before_it() -> None:
    found: list[int] = []
    with pytest.raises(ValueError, match=r"^5 is broken$"):
        found.extend(in_order(partial(counting, broken=5), PARTS, 2))
    assert found == [0, 1, 2, 3]


def test_a_process_that_ends_before_its_time_is_told() -> None:
    with pytest.raises(BrokenProcessPool):
        list(in_order(partial(counting, gone=11), PARTS, 2))


def test_the_processes_end_with_the_iterator() -> None:
    results = in_order(endless, [(5, 5), (6, 6)], 2)
    assert next(results) == 5
    assert len(multiprocessing.active_children()) == 2
    results.close()  # type: ignore[attr-defined]
    assert multiprocessing.active_children() == []


def test_ctrl_c_ends_all_processes_without_a_word() -> None:
    script = """
import multiprocessing, os, signal
from tests.timetravel.works import stuck
from vcd.timetravel.process_pool import _Shares, in_order
signal.signal(signal.SIGINT, signal.default_int_handler)  # it is ignored where tests run in the background
try:
    for number in in_order(stuck, [(1, 1), (2, 2)], 2):
        os.killpg(0, signal.SIGINT)  # as a terminal does: to every process of the group
except KeyboardInterrupt:
    print("interrupted", multiprocessing.active_children())
"""
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False, start_new_session=True
    )
    assert (done.stdout, done.stderr) == ("interrupted []\n", "")


def test_ctrl_c_is_kept_from_the_processes_that_a_program_begins_first() -> None:
    """Beginning the first one begins multiprocessing's resource tracker, which lets the signal through again."""
    script = """
from tests.timetravel.works import deaf
from vcd.timetravel.process_pool import _Shares, in_order
print(list(in_order(deaf, [(1, 1), (2, 2)], 2)))
"""
    done = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.stderr) == ("[1, 1]\n", "")
