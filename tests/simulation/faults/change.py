"""What administrators change while all runs: the scheduler's configuration, and its version."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tests.eventlog.first_schema import revert_to_first_schema
from tests.simulation.faults.aim import chosen, lasts
from vcd.eventlog import LogError

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

_GOOD: WeakKeyDictionary[Simulation, str] = WeakKeyDictionary()
"""What a configuration file is to say again that says something bad for now."""


def configure(sim: Simulation, text: str) -> None:
    """The configuration file of all replicas is written anew."""
    _GOOD.pop(sim, None)
    sim.affected["configure"] += not sim.conf_path.exists() or sim.conf_path.read_text() != text
    sim.conf_path.write_text(text)


def misconfigure(sim: Simulation, text: str | None, seconds: float) -> None:
    """The configuration file says something bad for so long, or is not there (null)."""
    if sim not in _GOOD:
        _GOOD[sim] = sim.conf_path.read_text()
    sim.affected["misconfigure"] += 1
    if text is None:
        sim.conf_path.unlink(missing_ok=True)
    else:
        sim.conf_path.write_text(text)
    lasts(sim, "misconfigure", seconds, lambda: mend(sim))


def is_bad(sim: Simulation) -> bool:
    """Whether the configuration file says something bad now."""
    return sim in _GOOD


def mend(sim: Simulation) -> None:
    """Let the configuration file say again what it said before it was bad."""
    if sim in _GOOD:
        sim.conf_path.write_text(_GOOD.pop(sim))


def age_log(sim: Simulation, replica: int, pause: float) -> None:
    """A replica's program is killed, and what it finds when it starts again is its log as an older vcd would have
    written it."""
    for each in chosen(sim, replica):
        if each.machine is None or not each.machine.alive or not each.machine.disk.log.exists():
            continue
        disk = each.machine.disk.after_crash(each.next_disk())
        try:
            revert_to_first_schema(disk.log)
        except LogError:  # it holds what that version knows nothing of, or cannot be opened: it stays as it is
            each.road.affected["age_log in vain"] += 1
        else:
            each.road.affected["age_log"] += 1
        each.kill(disk, pause=pause)


def install(sim: Simulation, replica: int, version: int) -> None:
    """A replica's program is of another version when it is started next: what replicas of the two say to each other,
    neither understands."""
    for each in chosen(sim, replica):
        each.road.affected["install"] += each.version != version
        each.version = version


def roll_out(sim: Simulation) -> None:
    """Let all replicas be of the newest version that any is."""
    newest = max(each.version for each in sim.replicas)
    for each in sim.replicas:
        each.version = newest
        if each.machine is not None and each.machine.version != newest:
            each.kill()


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act for act in (configure, misconfigure, age_log, install)
}  # fmt: skip
