"""ResourceQuotas: writes the usage of each quota to its status."""

from __future__ import annotations

from typing import ClassVar

from vcd.embedded.controllers.controller_base import (
    DELETED,
    PODS,
    Controller,
    Key,
    Manager,
    Obj,
    is_deleting,
    key_of,
)
from vcd.embedded.controllers.pod_properties import has_ended
from vcd.embedded.quota_admission import RESOURCE, resources_of, usage_of, with_status
from vcd.model.podgroups import Amounts
from vcd.model.quantity import add


class QuotaController(Controller):
    """Copies each quota's limits to its status, and counts the usage again after objects end or are deleted.

    Admission (``vcd.embedded.quota_admission``) counts new objects.
    """

    name: ClassVar[str] = "resourcequota-controller"

    def __init__(self, manager: Manager) -> None:
        super().__init__(manager)
        self.resources = tuple(rtype.storage for rtype in self.store.registry if rtype.namespaced)

    def observe(self, event: str, resource: str, obj: Obj) -> None:
        """Enqueue a changed quota, and all quotas in the namespace of a deleted object or an ended pod."""
        if resource == RESOURCE:
            super().observe(event, resource, obj)
        if event == DELETED or (resource == PODS and has_ended(obj)):
            for quota in self.store.list(RESOURCE, obj["metadata"]["namespace"]):
                self.enqueue(key_of(quota))

    def reconcile(self, key: Key) -> None:
        """Write the status of a quota if it changes."""
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
