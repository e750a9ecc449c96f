"""conformance: protect the pods that the cluster itself needs from eviction."""

from __future__ import annotations

from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.victims import victim_rule
from vcd.scheduling.session.views import Task

SYSTEM_CLASSES = frozenset({"system-cluster-critical", "system-node-critical"})
SYSTEM_NAMESPACE = "kube-system"


class ConformancePlugin(Plugin):
    """Protect pods of the namespace kube-system and of the system-critical priority classes from eviction."""

    name = "conformance"
    keys = ()
    protects = True

    @victim_rule("all tasks except protected ones")
    def preemptable(self, preemptor: object, tasks: list[Task]) -> list[Task]:
        """Return the candidates that are not protected."""
        return [
            task
            for task in tasks
            if task.namespace != SYSTEM_NAMESPACE and task.shape.spec.priority_class_name not in SYSTEM_CLASSES
        ]

    reclaimable = unified_evictable = preemptable
