"""conformance: what the system needs is not evicted."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import lets_go
from vcd.scheduling.session.views import Task

SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_NAMESPACE = "kube-system"


class ConformancePlugin(Plugin):
    """Pods of the namespace kube-system and of the system-critical priority classes are no victims."""

    name = "conformance"
    treats_alike = True
    protects = True

    def minds_exchanges(self) -> bool:
        """No: each pod is protected or not."""
        return False

    @lets_go("all but the protected")
    def preemptable(self, asker: object, tasks: list[Task]) -> list[Task]:
        """All but the protected."""
        return [
            task
            for task in tasks
            if task.namespace != SYSTEM_NAMESPACE and task.shape.spec.priority_class_name not in SYSTEM_CLASSES
        ]

    reclaimable = unified_evictable = preemptable
