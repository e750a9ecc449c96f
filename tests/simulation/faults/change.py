"""What administrators change while all runs: the scheduler's configuration, and its version."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tests.simulation.faults.aim import chosen, later
from vcd.eventlog import LogError
from vcd.timetravel.logfile import downgrade

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

OLDER = "0.1.0"
"""The version whose logs are migrated."""
_GOOD: WeakKeyDictionary[Simulation, str] = WeakKeyDictionary()
"""What a configuration file is to say again that says something bad for now."""


def configure(sim: Simulation, text: str) -> None:
    """The configuration file of all replicas is written anew."""
    file: Path | None = getattr(sim, "conf_path", None)
    if file is not None:
        _GOOD.pop(sim, None)
        file.write_text(text)


def misconfigure(sim: Simulation, text: str | None, seconds: float) -> None:
    """The configuration file says something bad for so long, or is not there (null)."""
    file: Path | None = getattr(sim, "conf_path", None)
    if file is None or not file.exists():
        return
    _GOOD.setdefault(sim, file.read_text())
    if text is None:
        file.unlink()
    else:
        file.write_text(text)
    later(sim, seconds, lambda: mend(sim))


def is_bad(sim: Simulation) -> bool:
    """Whether the configuration file says something bad now."""
    return sim in _GOOD


def mend(sim: Simulation) -> None:
    """Let the configuration file say again what it said before it was bad."""
    if sim in _GOOD:
        configure(sim, _GOOD[sim])


def age_log(sim: Simulation, replica: int, pause: float) -> None:
    """A replica's program is killed, and what it finds when it starts again is its log as an older vcd would have
    written it."""
    for each in chosen(sim, replica):
        if each.machine is None or not each.machine.alive or not each.machine.disk.log.exists():
            continue
        disk = each.machine.disk.after_crash(each.next_disk())
        try:
            downgrade(disk.log, OLDER)
        except LogError:  # it holds what that version knows nothing of, or cannot be opened: it stays as it is
            each.road.affected["age_log in vain"] += 1
        else:
            each.road.affected["age_log"] += 1
        each.kill(disk, pause=pause)


ACTS: dict[str, Callable[..., None]] = {"configure": configure, "misconfigure": misconfigure, "age_log": age_log}
