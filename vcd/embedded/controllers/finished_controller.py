"""Deletes ended pods and their PodGroups after some time, in place of the users that would do so on a real cluster."""

from __future__ import annotations

from typing import ClassVar

from vcd.embedded.controllers.controller_base import (
    DELETED,
    PODGROUPS,
    PODS,
    Controller,
    Key,
    Manager,
    Obj,
    annotations_of,
    controller_of,
    key_of,
)
from vcd.embedded.controllers.pod_properties import TERMINAL, phase_of
from vcd.model.controllers import GROUP_NAME


class FinishedController(Controller):
    """Deletes pods ``after`` cluster seconds from their end, and each PodGroup with its last pod.

    Objects with a controller are left to it. Keys are (resource, namespace, name).
    """

    name: ClassVar[str] = "finished"
    resources = (PODS, PODGROUPS)

    def __init__(self, manager: Manager, after: float) -> None:
        super().__init__(manager)
        self._after = after
        self._members: dict[Key, set[str]] = {}

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Note a pod without a controller: whether it ended, and which pods its group still has."""
        if resource != PODS or controller_of(obj) is not None:
            return
        namespace, name = key_of(obj)
        group = annotations_of(obj).get(GROUP_NAME)
        if group:
            members = self._members.setdefault((PODGROUPS, namespace, group), set())
            if event != DELETED:
                members.add(name)
            else:
                members.discard(name)
                self.enqueue((PODGROUPS, namespace, group))
        if event != DELETED and phase_of(obj) in TERMINAL:
            if not self._after:
                self.enqueue((PODS, namespace, name))
                return
            # in the background, because an otherwise idle cluster must not wait for this
            self.enqueue_at((PODS, namespace, name), self.clock.now() + self._after, background=True)

    def reconcile(self, key: Key) -> None:
        """Delete an ended pod, or a group without pods."""
        resource, namespace, name = key
        if resource == PODGROUPS:
            if self._members.get(key):
                return
            self._members.pop(key, None)
        obj = self.find(resource, namespace, name)
        if obj is None or controller_of(obj) is not None:
            return
        if resource == PODGROUPS or phase_of(obj) in TERMINAL:
            self.remove(resource, obj)
