"""What goes wrong with the disks that logs are on; ``replica`` is a number, or -1 for all."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING

from tests.simulation.disk import LOG, PAGE, Disk, Image
from tests.simulation.faults.aim import affected, at_write, chosen, lasts, later
from tests.simulation.replica import FIRST_PAUSE

if TYPE_CHECKING:
    from tests.simulation.replica import Machine, Replica
    from tests.simulation.simulation import Simulation

_LOOK = 10.0
"""Seconds between looks at whether a program starts on its disk."""
_WHEN = ("before", "after")


def fill_disk(sim: Simulation, replica: int, seconds: float, room: int, of: str = "files") -> None:
    """For so long, a log may grow by ``room`` bytes and no more: its ``files`` may not be larger, or no ``blocks`` are
    left for its database."""
    for each in chosen(sim, replica):
        if each.machine is not None:
            image = each.machine.disk.image()
            if of == "files":
                each.drive.capacity = sum(len(data) for data in image.values()) + room
            else:
                each.drive.pages = (len(image.get(LOG, b"")) + room) // PAGE
            each.road.affected["fill_disk"] += 1
            lasts(sim, ("room", each.name), seconds, each.drive.make_room)


def slow_disk(sim: Simulation, replica: int, seconds: float, slow: float) -> None:
    """For so long, each write takes ``slow`` seconds more."""
    for each in chosen(sim, replica):
        each.drive.slow = slow
        each.road.affected["slow_disk"] += 1
        lasts(sim, ("slow", each.name), seconds, partial(setattr, each.drive, "slow", 0.0))


def fail_disk(sim: Simulation, replica: int, seconds: float, share: float) -> None:
    """For so long, a share of the writes fails: some with nothing written, some with all of it."""
    for each in chosen(sim, replica):
        each.drive.fails = partial(_failure, sim, each, share)
        lasts(sim, ("fails", each.name), seconds, partial(setattr, each.drive, "fails", lambda: ""))


def _failure(sim: Simulation, replica: Replica, share: float) -> str:
    if sim.loop.rng.random() >= share:
        return ""
    replica.road.affected["fail_disk"] += 1
    return sim.loop.rng.choice(_WHEN)


def lose_power(sim: Simulation, replica: int, number: int, pause: float) -> None:
    """A machine loses its power amid its ``number``-th next write to the log, and is back after ``pause`` seconds."""
    for each in chosen(sim, replica):
        at_write(each, number, "lose_power", _PowerLoss(sim, each, pause))


class _PowerLoss:
    """What is planned for one write."""

    def __init__(self, sim: Simulation, replica: Replica, pause: float) -> None:
        self._sim = sim
        self._replica = replica
        self._pause = pause
        self._before: tuple[Machine | None, Image] = (None, {})

    def __call__(self, done: bool) -> bool:
        replica, machine = self._replica, self._replica.machine
        if machine is None or not machine.alive:
            return False
        if not done:
            self._before = machine, machine.disk.image()
        if not done or self._before[0] is not machine:
            return False
        left = machine.disk.after_power_loss(replica.next_disk(), self._before[1], self._sim.loop.rng)
        replica.kill(left, pause=self._pause)
        return True


def lose_disk(sim: Simulation, replica: int, pause: float) -> None:
    """A replica's pod is deleted with all that it wrote, and the next one begins with nothing."""
    for each in chosen(sim, replica):
        if _lose(each, pause):
            each.road.affected["lose_disk"] += 1


def _lose(replica: Replica, pause: float) -> bool:
    """Let the program that comes next begin with nothing; false where none runs."""
    if replica.machine is None or not replica.machine.alive:
        return False
    folder = replica.next_disk()
    folder.mkdir(parents=True)
    replica.kill(Disk(folder, replica.drive), pause=pause)
    replica.drive.damaged = False
    return True


def flip_bits(sim: Simulation, replica: int, number: int, pause: float) -> None:
    """A replica is killed, and finds ``number`` bits of its log's files changed when it starts again; often its WAL was
    in the database already. None where an older vcd wrote some of it, since nothing tells what was changed of that.
    Illegal."""
    for each in chosen(sim, replica):
        if each.machine is not None and each.machine.alive:
            disk = each.machine.disk.after_crash(each.next_disk())
            flips = 0 if _has_unlinked(disk) else number
            if sim.loop.rng.random() < 0.5 and disk.log.exists():
                with closing(sqlite3.connect(disk.log)) as connection:
                    connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
            disk.changed = frozenset(_flip(sim, disk) for _ in range(flips)) - {""}
            each.kill(disk, pause=pause)
            each.road.affected["flip_bits"] += flips > 0


def _has_unlinked(disk: Disk) -> bool:
    """Whether a log has events that no chain joins."""
    if not disk.log.exists():
        return False
    copy = disk.after_crash(disk.folder.with_name(f"{disk.folder.name}-looked-at"))
    with closing(sqlite3.connect(copy.log)) as connection:
        columns = {name for _, name, *_ in connection.execute("PRAGMA table_info(event)")}
        if "chain" not in columns:  # of an older schema yet, or empty
            return bool(columns)
        return bool(connection.execute("SELECT count(*) FROM event WHERE chain IS NULL").fetchone()[0])


def _flip(sim: Simulation, disk: Disk) -> str:
    """Change a bit of one of the log's files; returns its name, empty where there is none."""
    rng, files = sim.loop.rng, {name: data for name, data in disk.image().items() if data}
    if not files:
        return ""
    name = rng.choice(list(files))
    changed = bytearray(files[name])
    changed[rng.randrange(len(changed))] ^= 1 << rng.randrange(8)
    (disk.folder / name).write_bytes(changed)
    return name


def lose_syncs(sim: Simulation, replica: int, seconds: float, pause: float) -> None:
    """A disk says for so long that it wrote what it did not; then its machine loses its power. Illegal."""
    for each in chosen(sim, replica):
        if each.machine is not None and each.machine.alive:
            later(sim, seconds, partial(_lose_since, each, each.machine, each.machine.disk.image(), pause))


def _lose_since(replica: Replica, machine: Machine, image: Image, pause: float) -> None:
    if replica.machine is machine and machine.alive:
        disk = machine.disk.with_image(replica.next_disk(), image)
        disk.lacks = True
        replica.kill(disk, pause=pause)
        replica.road.affected["lose_syncs"] += 1


def kill_in_checkpoint(sim: Simulation, replica: int, number: int, pause: float) -> None:
    """A replica's program is killed before its ``number``-th write (1: the first) of the next checkpoint that it
    makes."""

    def act(each: Replica, done: bool) -> bool:
        nonlocal left
        if not done and (left < number or "checkpoint" in each.drive.statement):
            left -= 1
            if not left:
                each.kill(pause=pause)
        return not left

    left = number
    for each in chosen(sim, replica)[:1]:
        at_write(each, 1, "kill_in_checkpoint", partial(act, each))


def restart_full(sim: Simulation, replica: int, seconds: float, room: int, of: str = "files") -> None:
    """A replica is killed, and for so long its log may grow by ``room`` bytes and no more, from its start on."""
    fill_disk(sim, replica, seconds, room, of)
    for each in affected(sim, replica, "restart_full", runs=True):
        each.kill(pause=min(seconds / 2, 1.0))


def damage_event(sim: Simulation, replica: int, seconds: float) -> None:
    """A replica is killed, and of its log the last event cannot be read when it starts again; after so long somebody
    moves that log away. Illegal."""
    for each in chosen(sim, replica):
        if each.machine is not None and each.machine.alive:
            disk = each.machine.disk.after_crash(each.next_disk())
            each.drive.damaged |= _damage(disk)
            each.kill(disk)
            each.road.affected["damage_event"] += 1
            later(sim, seconds, partial(_move_damaged_away, each))


def _damage(disk: Disk) -> bool:
    """Make the last event unreadable; false where a checkpoint holds all, and nobody needs it."""
    if not disk.log.exists():
        return False
    with closing(sqlite3.connect(disk.log)) as connection:
        kept = "SELECT coalesce(max(sequence), 0) FROM checkpoint"
        last = f"SELECT max(sequence) FROM event WHERE payload IS NOT NULL AND sequence > ({kept})"
        try:
            changed = connection.execute(f"UPDATE event SET payload = x'ff' WHERE sequence = ({last})").rowcount
        except sqlite3.OperationalError:
            return False  # there are no tables yet
        connection.commit()
    return changed > 0


def mend(sim: Simulation, replica: Replica) -> None:
    """Nothing goes wrong any more; somebody moves a log away that no program can open since a disk changed it."""
    replica.drive.mend()
    if replica.road.affected["flip_bits"] or replica.road.affected["lose_syncs"]:
        _look_after(sim, replica)


def _look_after(sim: Simulation, replica: Replica) -> None:
    if replica.machine is not None and replica.machine.code:
        _move_away(replica)
    later(sim, _LOOK, partial(_look_after, sim, replica))


def _move_damaged_away(replica: Replica) -> None:
    if replica.drive.damaged:
        _move_away(replica)


def _move_away(replica: Replica) -> None:
    _lose(replica, FIRST_PAUSE)
    for file in replica.next_disk().glob(f"{LOG}*"):  # what the program that is about to start would find
        file.unlink()
    replica.drive.damaged = False


ACTS: dict[str, Callable[..., None]] = {
    act.__name__: act
    for act in (
        fill_disk, slow_disk, fail_disk, lose_power, lose_disk, kill_in_checkpoint, restart_full, flip_bits, lose_syncs,
        damage_event,
    )
}  # fmt: skip
