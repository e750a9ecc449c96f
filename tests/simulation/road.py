"""The way of a replica's requests to the API server and back: possible faults, and the outcome of each request."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

from tests.simulation.apiserver import Answer


@dataclass(eq=False)
class Asked:
    """A request of a program; the method is WATCH for a watch.

    ``status`` is its outcome: None until there is an answer, 0 if none came. ``wait`` is the server's Retry-After in
    seconds, or 0.
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
        """The path without the query."""
        return self.path.partition("?")[0]


@dataclass
class Way:
    """The outcome of one request. Seconds are in addition to those of the network.

    ``refused``: no connection is established. ``lost``: it never arrives. ``instead``: an answer in the server's place;
    the server does nothing. ``afterwards``: an answer that replaces the server's after it executed the request.
    ``forgotten``: the answer never arrives. ``cut``: the answer's body ends after this many bytes. ``path``: the path
    that the server receives, if it differs. ``done`` is called after the server executed it. ``impatient``: an answer
    that a proxy gives at once, while the request is on its way to the server. ``connecting`` is called while the
    connection is being established. ``held``: the time that the server takes for it, as a share of the request's
    ?timeout=.
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
"""Changes the outcome of a request, by its method (WATCH for a watch) and path."""


@dataclass(eq=False)
class Road:
    """The state of a replica's way to the server and back, for all of its programs."""

    up: bool = True
    """Whether the messages that it sends arrive."""
    down: bool = True
    """Whether the messages to it arrive."""
    cut_at: float = 0.0
    """The time since which one of the two is False."""
    late: float = 0.0
    """Seconds added to each piece of a watch."""
    draws: list[Draw] = field(default_factory=list)
    affected: Counter[str] = field(default_factory=Counter)
    """Number of times that each fault had an effect, by the name of the act."""
