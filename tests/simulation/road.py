"""The path of a replica's requests to the API server and back: possible faults, and the outcome of each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.apiserver import Answer


@dataclass(eq=False)
class Asked:
    """A request that a program makes, WATCH for a watch; what became of it is told by ``status``: None until there is
    an answer, 0 where none came. ``wait`` are the seconds after which the server wants to be asked again, 0 for none.
    """

    identity: str
    at: float
    method: str
    path: str
    body: bytes = b""
    status: int | None = None
    wait: int = 0

    @property
    def place(self) -> str:
        """Its path without the query."""
        return self.path.partition("?")[0]


@dataclass
class Way:
    """What becomes of one request. Seconds are beside what the network takes anyhow.

    ``refused``: no connection comes about. ``lost``: it never arrives. ``instead``: what somebody answers in the
    server's place, without doing it. ``afterwards``: what is answered in place of what the server said when it had done
    it. ``forgotten``: the answer never arrives. ``cut``: of the answer's body only so many bytes. ``path``: what the
    server takes itself to be asked, where that is something else. ``done`` is called once the server has done it.
    ``impatient``: what somebody between answers as soon as it got the request, which is still on its way to the server.
    ``connecting`` is called amid the time in which the connection comes about. ``held`` is how long the server takes
    from when it got the request until it is done, as a part of the time that the request may take (?timeout=).
    """

    asked: Asked
    there: float = 0.0
    back: float = 0.0
    refused: bool = False
    lost: bool = False
    instead: Answer | None = None
    afterwards: Answer | None = None
    forgotten: bool = False
    cut: int | None = None
    path: str = ""
    done: Callable[[], None] | None = None
    impatient: Answer | None = None
    connecting: Callable[[], None] | None = None
    held: float = 0.0


Draw = Callable[[str, str, Way], None]
"""Changes what becomes of a request, by its method (WATCH for a watch) and path."""


@dataclass(eq=False)
class Road:
    """What holds of a replica's way to the server and back, whichever of its programs goes it."""

    up: bool = True
    """Whether what it sends arrives."""
    down: bool = True
    """Whether what is sent to it arrives."""
    cut_at: float = 0.0
    """Since when not both hold."""
    late: float = 0.0
    """Seconds that each piece of a watch takes longer."""
    draws: list[Draw] = field(default_factory=list)
    affected: Counter[str] = field(default_factory=Counter)
    """How often what went wrong, by the name of the act."""
