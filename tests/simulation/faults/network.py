"""What goes wrong with requests: on the way, at the API server, in front of it.

``replica`` is the number of the replica that it befalls, or -1 for all; ``share`` is the part of its requests; ``what``
names which requests are meant (``aim.WHAT``).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from tests.simulation.apiserver import Answer
from tests.simulation.faults.aim import add_draw, at_request, chosen, lasts, later, spoil
from tests.simulation.network import LIMIT
from tests.simulation.road import Asked, Way
from vcd.embedded.schema_codec import encode
from vcd.embedded.status_errors import StatusError

if TYPE_CHECKING:
    from tests.simulation.replica import Replica
    from tests.simulation.simulation import Simulation

_REASONS = {
    403: ("Forbidden", 'admission webhook "deny.example.com" denied the request: not now'),
    409: ("Conflict", "Operation cannot be fulfilled: the object has been modified"),
    410: ("Expired", "too old resource version"),
    429: ("TooManyRequests", "too many requests, please try again later"),
    500: ("InternalError", "etcdserver: leader changed"),
    503: ("ServiceUnavailable", "the server is currently unable to handle the request"),
    504: ("Timeout", "request did not complete within the allotted time"),
}
_BAD_GATEWAY = Answer(502, {}, b"<html><body><h1>502 Bad Gateway</h1></body></html>")
_RETRY_AFTER = (1, 2, 5)
_AGAIN = 10.0
"""Seconds within which what was answered too early is asked for again."""


def answer_of(status: int, details: dict[str, Any] | None = None, metadata: dict[str, Any] | None = None) -> Answer:
    """What an API server, or what is in front of it, says with a status."""
    if status == 502:
        return _BAD_GATEWAY
    error = StatusError(status, *_REASONS[status], details, metadata or {})
    return Answer(status, error.headers, encode(error.status()))


def refuse_connections(sim: Simulation, replica: int, seconds: float, share: float, what: str) -> None:
    """No connection comes about."""
    spoil(sim, replica, seconds, share, what, "refuse_connections", partial(_marked, "refused"))


def lose_requests(sim: Simulation, replica: int, seconds: float, share: float, what: str) -> None:
    """Requests never arrive."""
    spoil(sim, replica, seconds, share, what, "lose_requests", partial(_marked, "lost"))


def lose_answers(sim: Simulation, replica: int, seconds: float, share: float, what: str) -> None:
    """Requests are done, and their answers never arrive."""
    spoil(sim, replica, seconds, share, what, "lose_answers", partial(_marked, "forgotten"))


def cut_answers(sim: Simulation, replica: int, seconds: float, share: float, what: str) -> None:
    """Requests are done, and the connection ends amid their answers."""

    def effect(method: str, path: str, way: Way) -> bool:
        way.cut = sim.loop.rng.randrange(200)
        return method != "WATCH"

    spoil(sim, replica, seconds, share, what, "cut_answers", effect)


def slow_requests(sim: Simulation, replica: int, seconds: float, share: float, what: str, most: float) -> None:
    """Requests and their answers take longer, by up to ``most`` seconds each way."""

    def effect(method: str, path: str, way: Way) -> bool:
        way.there += sim.loop.rng.uniform(0, most)
        way.back += sim.loop.rng.uniform(0, most)
        return True

    spoil(sim, replica, seconds, share, what, "slow_requests", effect)


def hold_writes(sim: Simulation, replica: int, seconds: float, share: float, what: str) -> None:
    """The server takes its time with writes, up to all that it has for each, be the client there or not."""

    def effect(method: str, path: str, way: Way) -> bool:
        if method in ("GET", "WATCH"):
            return False
        way.held = sim.loop.rng.random()
        return True

    spoil(sim, replica, seconds, share, what, "hold_writes", effect)


def answer_instead(sim: Simulation, replica: int, seconds: float, share: float, what: str, status: int) -> None:
    """Requests are answered with 409, 429, 500, 502, 503 or 504, and are not done."""

    def effect(method: str, path: str, way: Way) -> bool:
        if status == 409 and not _can_conflict(method, path):
            return False
        wait = {"retryAfterSeconds": sim.loop.rng.choice(_RETRY_AFTER)} if status == 429 else None
        way.instead = answer_of(status, wait)
        return True

    spoil(sim, replica, seconds, share, what, f"answer_instead {status}", effect)


def answer_afterwards(sim: Simulation, replica: int, seconds: float, share: float, what: str, status: int) -> None:
    """Requests are done, and answered with 500, 502 or 504 all the same."""

    def effect(method: str, path: str, way: Way) -> bool:
        way.afterwards = answer_of(status)
        return method != "WATCH"

    spoil(sim, replica, seconds, share, what, f"answer_afterwards {status}", effect)


def answer_early(sim: Simulation, replica: int, number: int, what: str, status: int, late: float) -> None:
    """What is in front of the server answers the ``number``-th next request with 502 or 504 while it is still on its
    way to the server, which takes ``late`` seconds, and twice as long when the same is asked for again."""

    def act(each: Replica, way: Way) -> None:
        way.impatient = answer_of(status)
        way.there += late
        add_draw(sim, each.road, _AGAIN, partial(_slow_same, way.asked, 2 * late))

    for each in chosen(sim, replica):
        at_request(each, number, what, f"answer_early {status}", partial(act, each))


def _slow_same(asked: Asked, seconds: float, method: str, path: str, way: Way) -> None:
    if (method, path) == (asked.method, asked.path):
        way.there += seconds


def rotate_tokens(sim: Simulation, replica: int, overlap: float, late: float) -> None:
    """A replica gets a new token. The one before it holds for ``overlap`` seconds more, and the file has the new one
    ``late`` seconds from now."""
    for each in chosen(sim, replica):
        each.access.issue(overlap)
        each.road.affected["rotate_tokens"] += 1
        later(sim, late, each.access.renew)


def deny_writes(sim: Simulation, replica: int, seconds: float, share: float, what: str) -> None:
    """A webhook denies writes, all of them but those of the Lease."""

    def effect(method: str, path: str, way: Way) -> bool:
        if method in ("GET", "WATCH") or "/leases" in path:
            return False
        way.instead = answer_of(403)
        return True

    spoil(sim, replica, seconds, share, what, "deny_writes", effect)


def short_pages(sim: Simulation, replica: int, seconds: float, most: int) -> None:
    """The server gives pages of ``most`` items, however many are asked for."""

    def effect(method: str, path: str, way: Way) -> bool:
        way.path = re.sub(r"\blimit=\d+", f"limit={most}", path)
        return way.path != path

    spoil(sim, replica, seconds, 1.0, "lists", "short_pages", effect)


def delay(sim: Simulation, replica: Replica, seconds: float, late: float, name: str) -> None:
    """For so long, let all that watches tell a replica arrive so many seconds late."""
    road, machine = replica.road, replica.machine
    road.late += late
    road.affected[name] += 0 if machine is None else len(machine.link.lines)

    def end() -> None:
        road.late = max(0.0, road.late - late)

    later(sim, seconds, end)


def late_watches(sim: Simulation, replica: int, seconds: float, late: float) -> None:
    """What watches tell arrives so many seconds late."""
    for each in chosen(sim, replica):
        delay(sim, each, seconds, late, "late_watches")


def partition(sim: Simulation, replica: int, seconds: float, ways: str) -> None:
    """Nothing gets from a replica to the server ("up"), from the server to it ("down"), or either ("both")."""
    for each in chosen(sim, replica):
        _part(sim, each, seconds, up=ways != "down", down=ways != "up")


def _part(sim: Simulation, replica: Replica, seconds: float, *, up: bool, down: bool) -> None:
    road = replica.road
    if road.up and road.down:
        road.cut_at = sim.loop.time()
    road.up, road.down = road.up and not up, road.down and not down
    road.affected["partition"] += 1
    lasts(sim, ("partition", replica.name), seconds, partial(heal, sim, replica))


def heal(sim: Simulation, replica: Replica) -> None:
    """End a replica's partition: what was kept back arrives, unless the machines gave its connection up meanwhile."""
    road, machine = replica.road, replica.machine
    lasted = 0.0 if road.up and road.down else sim.loop.time() - road.cut_at
    road.up = road.down = True
    if machine is not None and lasted > LIMIT:
        machine.link.reset()
    elif machine is not None:
        machine.link.resume()


def reset_connections(sim: Simulation, replica: int) -> None:
    """All connections of a replica are dropped at once."""
    for each in chosen(sim, replica):
        if each.machine is not None:
            each.road.affected["reset_connections"] += len(each.machine.link.lines) + len(each.machine.link.exchanges)
            each.machine.link.reset()


def restart_server(sim: Simulation, seconds: float) -> None:
    """The API server restarts and is back after so many seconds, with nothing in its watch cache."""
    reset_connections(sim, -1)
    sim.store.compact()
    spoil(sim, -1, seconds, 1.0, "all", "restart_server", partial(_marked, "refused"))


def compact(sim: Simulation) -> None:
    """History is compacted: watches from before, continue tokens and lists at older versions are answered with 410."""
    sim.affected["compact"] += 1
    sim.store.compact()


def _marked(mark: str, method: str, path: str, way: Way) -> bool:
    """An effect that only sets one of a Way's marks."""
    setattr(way, mark, True)
    return True


def _can_conflict(method: str, path: str) -> bool:
    return method in ("PUT", "PATCH", "DELETE") or (method == "POST" and "/binding" in path)


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        refuse_connections, lose_requests, lose_answers, cut_answers, slow_requests, hold_writes, answer_instead,
        answer_afterwards, answer_early, rotate_tokens, deny_writes, short_pages, late_watches, partition,
        reset_connections, restart_server, compact,
    )
}  # fmt: skip
