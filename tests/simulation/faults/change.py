"""What administrators change while all runs: the scheduler's configuration."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

from tests.simulation.faults.aim import later

if TYPE_CHECKING:
    from tests.simulation.simulation import Simulation

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


def mend(sim: Simulation) -> None:
    """Let the configuration file say again what it said before it was bad."""
    if sim in _GOOD:
        configure(sim, _GOOD[sim])


ACTS: dict[str, Callable[..., None]] = {"configure": configure, "misconfigure": misconfigure}
