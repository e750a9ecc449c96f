"""Queues: writes their state and the counts of their PodGroups, and creates ``root`` and ``default``."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar, Final

from vcd.embedded.controllers.controller_base import (
    COMMANDS,
    DELETED,
    PODGROUPS,
    QUEUES,
    Controller,
    Key,
    Manager,
    Obj,
    annotations_of,
    key_of,
)
from vcd.model.controllers import (
    CLOSE,
    CLOSED_BY_PARENT,
    OPEN,
    SHUT,
    action_of_parent,
    counts_by_phase,
)
from vcd.model.controllers import state_after as state_after

ROOT: Final = "root"
DEFAULT: Final = "default"


class QueueController(Controller):
    """Controls Queues as Volcano's queue controller does.

    Users open and close queues, and their children, by Command objects (OpenQueue, CloseQueue) or through the status.
    """

    name: ClassVar[str] = "queue-controller"
    resources = (QUEUES, PODGROUPS, COMMANDS)

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self._counts: dict[str, Counter[str]] = {}
        self._groups: dict[Key, tuple[str, str]] = {}
        self._actions: dict[str, str] = {}
        self.enqueue(("", DEFAULT))
        self.enqueue(("", ROOT))

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue a changed queue and its children, the queue of a changed group, and commands for queues."""
        if resource == QUEUES:
            name = obj["metadata"]["name"]
            if event != DELETED:
                self.enqueue(("", name))
            for child in self._children(name):
                self.enqueue(key_of(child))
        elif resource == PODGROUPS:
            self._note_group(event, obj)
        elif event != DELETED and (obj.get("target") or {}).get("kind") == "Queue":
            self.enqueue(key_of(obj))

    def reconcile(self, key: Key) -> None:
        """Carry out a command, or update a queue's parent, state and counts."""
        if key[0]:
            command = self.find(COMMANDS, *key)
            if command is not None:
                self.remove(COMMANDS, command)
                name = command["target"]["name"]
                self._actions[name] = command.get("action", "")
                self.enqueue(("", name))
            return
        queue = self.find(QUEUES, *key)
        if queue is None:
            if key[1] in (ROOT, DEFAULT):
                spec = {"weight": 1, "reclaimable": key[1] != ROOT}
                self.store.create(QUEUES, {"metadata": {"name": key[1]}, "spec": spec})
            return
        queue = self._with_parent(queue)
        self._write(queue, self._actions.pop(key[1], ""))

    def _note_group(self, event: str, group: Obj) -> None:
        """Update the counts of groups by queue and phase, and enqueue queues whose counts changed."""
        key = key_of(group)
        before = self._groups.pop(key, None)
        now = None
        if event != DELETED:
            queue = (group.get("spec") or {}).get("queue") or DEFAULT
            now = self._groups[key] = (queue, (group.get("status") or {}).get("phase") or "")
        if before == now:
            return
        for place, change in ((before, -1), (now, 1)):
            if place is not None:
                self._counts.setdefault(place[0], Counter())[place[1]] += change
                self.enqueue(("", place[0]))

    def _with_parent(self, queue: Obj) -> Obj:
        if queue["metadata"]["name"] == ROOT or (queue.get("spec") or {}).get("parent"):
            return queue
        return self.store.patch(QUEUES, "", queue["metadata"]["name"], {"spec": {"parent": ROOT}})

    def _children(self, name: str) -> list[Obj]:
        return [each for each in self.store.list(QUEUES) if (each.get("spec") or {}).get("parent") == name]

    def _write(self, queue: Obj, action: str) -> None:
        name = queue["metadata"]["name"]
        counts = self._counts.get(name, Counter())
        status = queue.get("status") or {}
        before = status.get("state") or ""
        if action == "CloseQueue" and name == ROOT:
            self.manager.events.record(self.name, queue, "Warning", action, "Root queue cannot be closed")
            action = ""
        if action == "OpenQueue" and self._parent_state(queue) in SHUT:
            message = f"Failed to open queue {name} because its parent queue is closing or closed."
            self.manager.events.record(self.name, queue, "Warning", action, message)
            action = ""
        state = state_after(before, action or self._forced_by_parent(queue, before), counts.total())
        wanted = {"state": state, **counts_by_phase(counts)}
        changed = {field: value for field, value in wanted.items() if value != status.get(field, 0)}
        if changed:
            self.store.patch(QUEUES, "", name, {"status": changed}, "status")
        if action == "OpenQueue":
            self._mark(queue, "false")

    def _parent_state(self, queue: Obj) -> str:
        parent = self.find(QUEUES, "", (queue.get("spec") or {}).get("parent") or ROOT)
        return ((parent or {}).get("status") or {}).get("state") or OPEN

    def _forced_by_parent(self, queue: Obj, state: str) -> str:
        """Return the action that the parent's state requires, for an open queue or one that the parent closed."""
        if queue["metadata"]["name"] == ROOT:
            return ""
        action = action_of_parent(state, self._parent_state(queue), annotations_of(queue))
        if action:
            self._mark(queue, "true" if action == CLOSE else "false")
        return action

    def _mark(self, queue: Obj, value: str) -> None:
        if annotations_of(queue).get(CLOSED_BY_PARENT) != value:
            patch = {"metadata": {"annotations": {CLOSED_BY_PARENT: value}}}
            self.store.patch(QUEUES, "", queue["metadata"]["name"], patch)
