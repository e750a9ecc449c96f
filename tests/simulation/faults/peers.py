"""What goes wrong between replicas of one log; ``replica`` is a number, or -1 for all, as is ``other``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.faults import disks, network
from tests.simulation.faults.aim import all_last, chosen, later
from tests.simulation.network import LIMIT
from tests.simulation.socket import End

if TYPE_CHECKING:
    from tests.simulation.peers import Direction, Peers
    from tests.simulation.replica import Replica
    from tests.simulation.simulation import Simulation


def _directions(sim: Simulation, replica: int, other: int, ways: str) -> list[Direction]:
    """Those from one to another ("there"), the other way ("back"), or "both"."""
    found = []
    for one in chosen(sim, replica):
        for two in chosen(sim, other):
            if one is not two:
                found += [sim.peers.directions[one.name, two.name]] if ways != "back" else []
                found += [sim.peers.directions[two.name, one.name]] if ways != "there" else []
    return found


def part_peers(sim: Simulation, replica: int, other: int, seconds: float, ways: str) -> None:
    """Nothing gets from a replica to another, or back, or either; both reach the API server as ever."""
    parted = _directions(sim, replica, other, ways)
    sim.peers.affected["part_peers"] += len(parted)

    def end(each: Direction) -> None:
        each.open = True
        if seconds > LIMIT:
            _cut(sim, replica, other, "part_peers")
        sim.peers.resume()

    for each in parted:
        each.open = False
    all_last(sim, parted, seconds, end)


def late_peers(sim: Simulation, replica: int, other: int, seconds: float, late: float) -> None:
    """What replicas send each other arrives so many seconds late."""
    slow = _directions(sim, replica, other, "both")
    sim.peers.affected["late_peers"] += len(slow)
    for each in slow:
        each.late += late

    def end() -> None:
        for each in slow:
            each.late = max(0.0, each.late - late)

    later(sim, seconds, end)


def reset_peers(sim: Simulation, replica: int) -> None:
    """All connections of a replica with others are dropped at once; what is on its way may still arrive."""
    _cut(sim, replica, -1, "reset_peers")


def _cut(sim: Simulation, replica: int, other: int, name: str) -> None:
    for one in chosen(sim, replica):
        for two in chosen(sim, other):
            for end in sim.peers.between(one.name, two.name):
                sim.peers.affected[name] += 1
                end.cut()


def _at_message(peers: Peers, sent: bool, replica: Replica, number: int, name: str, act: Callable[[End], None]) -> None:
    """Let something befall the ``number``-th message from now on (1: the next) that a replica sends, or reads."""
    left, plans = number, peers.plans[sent]

    def look(end: End, data: bytes) -> None:
        nonlocal left
        if end.machine.replica != replica.name:
            return
        left -= 1
        if left <= 0:
            plans.remove(look)
            peers.affected[name] += 1
            act(end)

    plans.append(look)


def _unminded(act: Callable[[], None], _: End) -> None:
    """Do it, whatever connection it was."""
    act()


def cut_amid_message(sim: Simulation, replica: int, number: int) -> None:
    """The connection ends amid the ``number``-th next message that a replica sends to another, which is lost."""

    def act(end: End) -> None:
        end.drop()

    for each in chosen(sim, replica):
        _at_message(sim.peers, True, each, number, "cut_amid_message", act)


def kill_at_message(sim: Simulation, replica: int, number: int, sent: bool, pause: float) -> None:
    """A replica's program is killed at the ``number``-th next message that it is about to send, or has just read."""
    for each in chosen(sim, replica):
        _kill_at_message(sim, each, number, sent, pause, "kill_at_message")


def _kill_at_message(sim: Simulation, replica: Replica, number: int, sent: bool, pause: float, name: str) -> None:
    kill = partial(replica.kill, None, pause)
    _at_message(sim.peers, sent, replica, number, name, partial(_unminded, kill))


def pause_at_message(sim: Simulation, replica: int, number: int, sent: bool, seconds: float) -> None:
    """A replica is stopped for so long at the ``number``-th next message that it sends, or reads."""
    for each in chosen(sim, replica):
        stop = partial(each.stop_for, seconds)
        _at_message(sim.peers, sent, each, number, "pause_at_message", partial(_unminded, stop))


def _of_role(sim: Simulation, leads: bool) -> list[int]:
    """The numbers of the replicas that lead, or do not."""
    return [number for number, each in enumerate(sim.replicas) if each.service is not None and each.leads == leads]


def kill_leader(sim: Simulation, pause: float) -> None:
    """Who leads is ended as by SIGKILL, and started again after ``pause`` seconds."""
    for number in _of_role(sim, leads=True):
        sim.peers.affected["kill_leader"] += 1
        sim.replicas[number].kill(pause=pause)


def kill_leader_at_message(sim: Simulation, number: int, pause: float) -> None:
    """Who leads is killed at the ``number``-th next message that it is about to send, and started after ``pause``
    seconds."""
    for leader in _of_role(sim, leads=True):
        _kill_at_message(sim, sim.replicas[leader], number, True, pause, "kill_leader_at_message")


def succeed_behind(sim: Simulation, wait: float, cut: float, pause: float) -> None:
    """Nothing of who leads gets to one of two others any more; after ``wait`` seconds it is killed, to be back after
    ``pause`` seconds; meanwhile the other one does not get at the API server for ``cut`` seconds. So leads next who
    lacks what the other one has."""
    leaders, others = _of_role(sim, leads=True), _of_role(sim, leads=False)
    if len(leaders) != 1 or len(others) < 2:
        return
    behind, ahead = sim.loop.rng.sample(others, 2)
    part_peers(sim, leaders[0], behind, wait + cut, "there")

    def succeed() -> None:
        sim.peers.affected["succeed_behind"] += 1
        sim.replicas[leaders[0]].kill(pause=pause)
        network.partition(sim, ahead, cut, "both")

    later(sim, wait, succeed)


def lead_alone(sim: Simulation, alone: float, pause: float) -> None:
    """Who leads has no road to the others for so long, and is killed then, to be back after ``pause`` seconds: what it
    decided alone nobody else has."""
    for number in _of_role(sim, leads=True):
        sim.peers.affected["lead_alone"] += 1
        part_peers(sim, number, -1, alone + pause, "both")
        later(sim, alone, partial(sim.replicas[number].kill, None, pause))


def slow_followers(sim: Simulation, seconds: float, slow: float) -> None:
    """For so long, each write of the replicas that do not lead now takes ``slow`` seconds more."""
    for number in _of_role(sim, leads=False):
        sim.peers.affected["slow_followers"] += 1
        disks.slow_disk(sim, number, seconds, slow)


def fill_followers(sim: Simulation, seconds: float, room: int) -> None:
    """For so long, the logs of the replicas that do not lead now may grow by ``room`` bytes and no more."""
    for number in _of_role(sim, leads=False):
        sim.peers.affected["fill_followers"] += 1
        disks.fill_disk(sim, number, seconds, room)


def calm(sim: Simulation) -> None:
    """From now on nothing goes wrong between replicas."""
    for plans in sim.peers.plans.values():
        plans.clear()
    for direction in sim.peers.directions.values():
        direction.open, direction.late = True, 0.0
    sim.peers.resume()


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        part_peers, late_peers, reset_peers, cut_amid_message, kill_at_message, pause_at_message, kill_leader,
        kill_leader_at_message, succeed_behind, lead_alone, slow_followers, fill_followers,
    )
}  # fmt: skip
