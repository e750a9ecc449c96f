"""What goes wrong with watches and lists; ``replica`` and ``share`` as for requests, of the watches that are open."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.apiserver import Answer
from tests.simulation.faults.aim import all_last, chosen, count, lasts, later, spoil
from tests.simulation.faults.network import answer_of, delay
from tests.simulation.road import Way
from tests.simulation.workload import RESOURCES, add_pods, edit, refusable
from vcd.embedded.controllers.controller_base import key_of
from vcd.embedded.schema_codec import encode
from vcd.embedded.status_errors import StatusError, expired

if TYPE_CHECKING:
    from tests.simulation.line import Line
    from tests.simulation.simulation import Simulation

_LOST_TOKEN = "The provided continue parameter is too old to display a consistent list result."


def _drawn(sim: Simulation, replica: int, share: float, name: str) -> list[Line]:
    """A share of the open watches."""
    found: list[Line] = []
    for each in chosen(sim, replica):
        lines = [] if each.machine is None or not each.machine.alive else each.machine.link.lines
        drawn = [line for line in lines if sim.loop.rng.random() < share]
        each.road.affected[name] += len(drawn)
        found += drawn
    return found


def close_watches(sim: Simulation, share: float) -> None:
    """The server ends watches, whosever they are."""
    for stream in sim.server.open_watches():
        if sim.loop.rng.random() < share:
            sim.affected["close_watches"] += 1
            stream.end()


def expire_watches(sim: Simulation, share: float) -> None:
    """The server ends watches with an ERROR line that says 410, whosever they are."""
    for stream in sim.server.open_watches():
        if sim.loop.rng.random() < share:
            sim.affected["expire_watches"] += 1
            stream.fail(expired("The resourceVersion for the provided watch is too old."))


def refuse_watches(sim: Simulation, replica: int, seconds: float, share: float, status: int) -> None:
    """New watches are answered with 410, 429, 500, 503 or 504."""

    def effect(method: str, path: str, way: Way) -> bool:
        wait = {"retryAfterSeconds": 1} if status == 429 else None
        way.instead = answer_of(status, wait)
        return True

    spoil(sim, replica, seconds, share, "watches", f"refuse_watches {status}", effect)


def fail_watches(sim: Simulation, seconds: float, code: int) -> None:
    """New watches end as soon as they are open, with an ERROR line of 410 or 500."""
    sim.server.habits.fail_watches = code
    lasts(sim, "fail_watches", seconds, lambda: setattr(sim.server.habits, "fail_watches", 0))
    count(sim, seconds, "watches", "fail_watches")


def break_watches(sim: Simulation, replica: int, share: float) -> None:
    """Connections of watches end amid the next piece that the server writes, mostly in the midst of a line."""
    for line in _drawn(sim, replica, share, "break_watches"):
        line.reset_amid(sim.loop.rng.random())


def stall_watches(sim: Simulation, replica: int, seconds: float, share: float) -> None:
    """What open watches tell is kept back for so long, their connections open."""
    lines = _drawn(sim, replica, share, "stall_watches")

    def end(line: Line) -> None:
        line.stalled = False
        line.resume()

    for line in lines:
        line.stalled = True
    all_last(sim, lines, seconds, end)


def grow_unseen(sim: Simulation, namespace: str, gang: str, more: int, cpu: int, resource: str, seconds: float) -> None:
    """A gang's minimum is raised by some pods, which are then made, while the watches of ``resource`` (``podgroups``,
    ``queues``) show nothing for so many seconds: the pods are seen first."""
    found = sim.store.find(RESOURCES["group"], namespace, gang)
    if found is None:
        return
    lines = [
        line
        for each in sim.replicas
        if each.machine is not None and each.machine.alive
        for line in each.machine.link.lines
        if line.path.partition("?")[0].endswith(f"/{resource}")
    ]
    for line in lines:
        line.stalled = True

    def end(line: Line) -> None:
        line.stalled = False
        line.resume()

    all_last(sim, lines, seconds, end)
    sim.affected["grow_unseen"] += bool(lines)
    least = found["spec"].get("minMember", 1) + more
    edit(sim, "group", namespace, gang, {"spec": {"minMember": least}})
    first = 100 + found["metadata"].get("generation", 1)  # names that no other act makes
    add_pods(sim, gang, first, more, cpu, {"namespace": namespace})


def end_watches_soon(sim: Simulation, replica: int, seconds: float) -> None:
    """New watches tell a bookmark and end at once, as where something between ends what was open for long."""

    def effect(method: str, path: str, way: Way) -> bool:
        def end() -> None:
            for stream in sim.server.open_watches()[-1:]:
                stream.bookmark()
                stream.end()

        way.done = end
        return True

    spoil(sim, replica, seconds, 1.0, "watches", "end_watches_soon", effect)


def watch_again(sim: Simulation, replica: int, seconds: float, share: float, back: int) -> None:
    """New watches begin up to ``back`` versions before the one that was asked for, as far as they are not compacted: in
    one piece, all that happened since then comes again."""

    def effect(method: str, path: str, way: Way) -> bool:
        found = re.search(r"\bresourceVersion=(\d+)", path)
        asked = int(found.group(1)) if found else 0
        earlier = asked - sim.loop.rng.randint(1, back)
        if earlier <= 0 or found is None:
            return False
        way.path = path.replace(found.group(0), f"resourceVersion={earlier}")
        return True

    spoil(sim, replica, seconds, share, "watches", "watch_again", effect)


def list_anew(sim: Simulation, replica: int, seconds: float, most: int) -> None:
    """Watches are answered with 410 once, and for so long lists come in pages of ``most`` items. Each time that a page
    behind the first is asked for, somebody may delete a pod, and history is compacted: the list has to begin anew."""

    def effect(method: str, path: str, way: Way) -> bool:
        way.path = re.sub(r"\blimit=\d+", f"limit={most}", path)
        if "continue=" in path and sim.loop.rng.random() < 0.5:
            pods = sim.store.list("pods")
            if pods and "/pods?" in path:
                with refusable():
                    sim.store.delete("pods", *key_of(pods[0]))
            sim.store.compact()
        return True

    spoil(sim, replica, seconds, 1.0, "lists", "list_anew", effect)
    expire_watches(sim, 1.0)


def compare_lists(sim: Simulation, replica: int, times: int, every: float) -> None:
    """It is half an hour since a replica listed all, so many times: its watches end, as they do each few minutes, and
    what it knows is compared with lists at the versions that they have reached."""
    _compare(sim, replica)
    for number in range(1, times):
        later(sim, number * every, partial(_compare, sim, replica))
    spoil(sim, replica, times * every, 1.0, "lists", "compare_lists", compares)


def _compare(sim: Simulation, replica: int) -> None:
    if not sim.calm:
        _let_compare(sim, replica)


def _let_compare(sim: Simulation, replica: int) -> None:
    for each in chosen(sim, replica):
        for watcher in [] if each.service is None else each.service.watches._watchers.values():
            watcher._compare_at = 0.0
        for line in [] if each.machine is None else each.machine.link.lines:
            line.end()


def compare_at_last(sim: Simulation) -> None:
    """Once nothing goes wrong any more it is half an hour since all was listed: who leads goes on, and what watches
    told wrongly is found by comparing alone."""
    sim.affected["compare_at_last"] += 1
    _let_compare(sim, -1)


def compares(method: str, path: str, way: Way) -> bool:
    """Whether a list is one at the version that a watch has reached."""
    return "resourceVersionMatch=Exact" in path


def lose_tokens(sim: Simulation, replica: int, seconds: float, share: float) -> None:
    """Lists come in pages of two items, and a share of them is told in their midst that their continue token is too
    old."""

    def effect(method: str, path: str, way: Way) -> bool:
        way.path = re.sub(r"\blimit=\d+", "limit=2", path)
        if "continue=" not in path or sim.loop.rng.random() >= share:
            return False
        error = StatusError(410, "Expired", _LOST_TOKEN)
        way.instead = Answer(410, {}, encode(error.status()))
        return True

    spoil(sim, replica, seconds, 1.0, "lists", "lose_tokens", effect)
    expire_watches(sim, 1.0)


def stale_server(sim: Simulation, replica: int, seconds: float, behind: float) -> None:
    """The server's watch cache is so many seconds behind: watches are late, lists at a version are put off, and one
    that may be old is. Other lists ask for the newest state, which also such a server reads from etcd.

    Meanwhile what is known is compared with such lists.
    """
    versions: list[tuple[float, int]] = []

    def effect(method: str, path: str, way: Way) -> bool:
        now = sim.loop.time()
        versions.append((now, sim.store.version))
        if "resourceVersion=0" in path:
            old = next((version for at, version in reversed(versions) if at <= now - behind), versions[0][1])
            way.path = path.replace("resourceVersion=0", f"resourceVersion={old}&resourceVersionMatch=Exact")
            return True
        if "resourceVersionMatch=Exact" not in path:
            return False
        way.instead = answer_of(504, {"causes": [{"reason": "ResourceVersionTooLarge"}], "retryAfterSeconds": 1})
        return True

    spoil(sim, replica, seconds, 1.0, "lists", "stale_server", effect)
    compare_lists(sim, replica, 1, seconds)
    for each in chosen(sim, replica):
        delay(sim, each, seconds, behind, "late")


def no_bookmarks(sim: Simulation, seconds: float) -> None:
    """Watches that are opened meanwhile get no bookmarks."""
    sim.server.habits.bookmarks = False
    lasts(sim, "no_bookmarks", seconds, lambda: setattr(sim.server.habits, "bookmarks", True))
    count(sim, seconds, "watches", "no_bookmarks")


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        close_watches, expire_watches, refuse_watches, fail_watches, break_watches, stall_watches, no_bookmarks,
        grow_unseen, end_watches_soon, watch_again, list_anew, compare_lists, compare_at_last, lose_tokens,
        stale_server,
    )
}  # fmt: skip
