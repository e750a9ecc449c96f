"""Seeds of the simulation violate no invariant, and a seed decides everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from tests.simulation import record
from tests.simulation.script import Act, Script
from tests.sizes import WIDE, blocks

ROOT = Path(__file__).resolve().parents[2]
BLOCK = 12
OFTEN = 5
"""In so many seeds of a block an act has to be drawn, that it is to have an effect in one of them."""


def ran(*arguments: str, cwd: Path = ROOT, **environment: str) -> subprocess.CompletedProcess[str]:
    """The command of the simulation in a process of its own, whose standard library it replaces."""
    command = [sys.executable, "-m", "tests.simulation", *arguments]
    return subprocess.run(
        command, cwd=cwd, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONHASHSEED": "0", "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip


@pytest.mark.parametrize(
    "block", [*blocks(5, 96, BLOCK), range(10_000, 10_003)], ids=lambda block: f"{block.start}-{block.stop - 1}"
)
def test_no_invariant_is_violated_and_a_seed_decides_everything_in_any_environment(
    block: range, tmp_path: Path
) -> None:
    """What is drawn often in the seeds has an effect in one of them.

    The first two go the same way elsewhere: in make test those of the first block.
    """
    kept, folder = tmp_path / "kept", tmp_path / "elsewhere"
    done = ran(f"{block.start}:{block.stop}", "--digests", str(kept))
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(block)} seeds, 0 with violations" in done.stdout
    missed = re.findall(r"^act without effect in any of (\d+) seeds: (\w+)$", done.stdout, re.MULTILINE)
    assert [name for count, name in missed if int(count) >= OFTEN] == []

    digests = record.read(kept)
    assert len(set(digests.values())) == len(block)
    if block.start and not WIDE:
        return
    kept.write_text(kept.read_text().replace(digests[block.start], "00000000"))
    folder.mkdir()
    others = {"TMPDIR": str(folder), "LANG": "de_DE.UTF-8", "TZ": "Asia/Tokyo", "HOSTNAME": "other",
              "POD_NAME": "other", "POD_NAMESPACE": "other", "VCD_PLACEMENTS": "1"}  # fmt: skip
    again = ran(f"{block.start}:{block.start + 2}", "--against", str(kept), cwd=folder, **others)
    assert again.returncode == 1, again.stdout + again.stderr
    assert "1 seeds differ" in again.stdout


@pytest.mark.wide
def test_where_the_folder_of_a_run_lies_is_none_of_what_two_runs_have_in_common(tmp_path: Path) -> None:
    lost = Act(8.0, "misconfigure", (None, 5.0))  # an Event names the file that is not there
    file = tmp_path / "script.json"
    file.write_bytes(msgspec.json.encode(Script(1, replicas=1, storm=20.0, calm=10.0, acts=(lost,))))
    once, again = ran("run", str(file)), ran("run", str(file))
    assert once.returncode == 0, once.stdout + once.stderr
    assert re.fullmatch(r"digest \w{16}, [\d,]+ steps\n", once.stdout)
    assert again.stdout == once.stdout


def test_a_run_that_is_killed_or_never_ends_is_told() -> None:
    done = with_the_machine(
        "import os, time\n"
        "from tests.simulation.night import outcomes\n"
        "def run(seed):\n"
        "    os.kill(os.getpid(), 9) if seed else time.sleep(3600.0)\n"
        "print(*(found.violations[0] for found in outcomes(run, range(2), 2, 1.0)), sep='\\n')\n"
    )
    assert "comes to an end at 0.000 s: its process ended with 1, and said nothing" in done.stdout, done.stderr
    assert "comes to an end at 0.000 s: its process ended with -9, and said nothing" in done.stdout, done.stderr


def test_a_record_has_the_digest_of_each_seed(tmp_path: Path) -> None:
    digests = {seed: f"{seed:016x}"[::-1] for seed in range(95, 120)}
    record.write(tmp_path / "kept", range(95, 120), "25 seeds", digests)
    kept = record.read(tmp_path / "kept")
    assert kept == {seed: digest[:8] for seed, digest in digests.items()}
    assert record.differing(kept, {**digests, 97: "f" * 16, 500: ""}) == [97]


def test_a_night_has_parts(tmp_path: Path) -> None:
    file, first, second = tmp_path / "kept", dict.fromkeys(range(8, 12), "a" * 16), dict.fromkeys((20, 22), "b" * 16)
    record.write(file, range(8, 12), "4 seeds", first)
    record.write(file, range(20, 24), "1 seed so far", {20: "c" * 16})
    record.write(file, range(20, 24), "2 seeds so far", second)
    assert record.read(file) == {seed: digest[:8] for seed, digest in (first | second).items()}
    assert [line for line in file.read_text().splitlines() if line.startswith("#")] == [
        "# 8:12: 4 seeds", "# 20:24: 2 seeds so far",
    ]  # fmt: skip
    record.write(file, range(0, 30), "30 seeds", dict.fromkeys(range(30), "d" * 16))
    assert file.read_text().startswith("# 0:30: 30 seeds\n0 dddddddd")
    assert len(file.read_text().splitlines()) == 4


def with_the_machine(program: str) -> subprocess.CompletedProcess[str]:
    """A program in a process whose standard library the simulation replaces."""
    command = [sys.executable, "-c", "from tests.simulation import machine; machine.install()\n" + program]
    environment = {**os.environ, "PYTHONHASHSEED": "0"}
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, env=environment)


@pytest.mark.wide
def test_seeds_draw_each_act_that_there_is_in_their_order() -> None:
    done = with_the_machine(
        "from tests.simulation.acts import ACTS; from tests.simulation.swarm import drawn\n"
        "drawn_acts = {'calm'}\n"  # which is after each storm
        "for seed in (*range(5000), *range(10_000, 10_040)):\n"
        "    script = drawn(seed)\n"
        "    acts = [act for act in script.acts if act.at <= script.storm]\n"
        "    assert len(script.acts) - len(acts) in (0, 1, 2), seed\n"  # those of what is healed later
        "    drawn_acts |= {act.what for act in script.acts}\n"
        "    assert [act.at for act in acts] == sorted(act.at for act in acts), seed\n"
        "assert drawn_acts == ACTS.keys(), drawn_acts ^ ACTS.keys()\n"
    )
    assert done.returncode == 0, done.stderr
