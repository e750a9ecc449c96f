"""ResourceQuotas: what a namespace's objects use of its limits."""

from __future__ import annotations

from typing import ClassVar

from vcd.embedded.controllers.base import (
    DELETED,
    PODS,
    Controller,
    Key,
    Manager,
    Obj,
    is_deleting,
    key_of,
)
from vcd.embedded.controllers.pods import has_ended
from vcd.embedded.quotas import RESOURCE, resources_of, usage_of, with_status
from vcd.model.podgroups import Amounts
from vcd.model.quantity import add


class QuotaController(Controller):
    """Copies each quota's limits to its status, and counts again what is used when objects end or are deleted.

    What is created is counted by admission (``vcd.embedded.quotas``).
    """

    name: ClassVar[str] = "resourcequota-controller"

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.resources = tuple(rtype.storage for rtype in self.store.registry if rtype.namespaced)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """A quota; or an object that is deleted, or a pod that ended, in a namespace with quotas."""
        if resource == RESOURCE:
            super().observe(event, resource, obj)
        if event == DELETED or (resource == PODS and has_ended(obj)):
            for quota in self.store.list(RESOURCE, obj["metadata"]["namespace"]):
                self.enqueue(key_of(quota))

    def reconcile(self, key: Key) -> None:
        """Write the status of a quota if it is another one."""
        quota = self.find(RESOURCE, *key)
        if quota is None or is_deleting(quota):
            return
        used: Amounts = {}
        for resource in resources_of(quota):
            if self.store.registry.get(resource) is not None:
                for obj in self.store.list(resource, key[0]):
                    if not (resource == PODS and has_ended(obj)):
                        add(used, usage_of(resource, obj, quota))
        counted = with_status(quota, used)
        if counted["status"] != quota.get("status"):
            self.store.update(RESOURCE, counted, "status")
