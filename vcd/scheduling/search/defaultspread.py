"""Selectors of default topology spreading: the pods that a pod's Services and its controller select.

Source: Kubernetes ``pkg/scheduler/framework/plugins/helper/spread.go``.
"""

from __future__ import annotations

from typing import Final

from vcd.model.objects import Pod, ReplicaSet, ReplicationController, Service, StatefulSet
from vcd.model.selectors import EVERYTHING, IN, LabelSelector, Selector, SelectorError
from vcd.scheduling.search.podterms import narrowed
from vcd.scheduling.session.session import Session
from vcd.scheduling.session.views import Task
from vcd.state.records import set_of

_Key = tuple[str, str]
_SETS: Final[dict[_Key, type[ReplicaSet] | type[StatefulSet]]] = {
    ("ReplicaSet", "apps/v1"): ReplicaSet,
    ("StatefulSet", "apps/v1"): StatefulSet,
}
_CONTROLLER: Final = ("ReplicationController", "v1")
_NO_OWNER: Final = ("", "")

_Services = dict[str, list[tuple[tuple[str, str], ...]]]


class DefaultSpread:
    """The default spread selectors of a session's pods, computed once per namespace, labels and owner."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._services: _Services = session.cached_for("Service", "selectors by namespace", self._by_namespace)
        self._owned = any(session.snapshot.others.get(kind) for kind in ("ReplicaSet", "StatefulSet", _CONTROLLER[0]))
        self._found: dict[tuple[str, int, tuple[str, str], str], Selector | None] = {}

    def _by_namespace(self) -> _Services:
        """Return the selectors of Services, by namespace. A Service without a selector has no pods."""
        found: _Services = {}
        for key, service in sorted(self._session.objects("Service", Service).items()):
            if service.spec.selector:
                found.setdefault(key.partition("/")[0], []).append(tuple(sorted(service.spec.selector.items())))
        return found

    def of(self, task: Task) -> Selector | None:
        """Return the selector of the pods among which a task is spread, or None if nothing selects the task."""
        if not self._owned and task.namespace not in self._services:
            return None
        owner, name = (set_of(task.pod) if self._owned else None) or (_NO_OWNER, "")
        key = (task.namespace, task.labels, owner, name)
        if key not in self._found:
            self._found[key] = self._selector(task.namespace, task.pod, owner, name)
        return self._found[key]

    def depends_on_labels(self, namespace: str) -> bool:
        """Whether two pods of a namespace and one owner, different in labels alone, may get different selectors."""
        return namespace in self._services

    def _selector(self, namespace: str, pod: Pod, owner: _Key, name: str) -> Selector | None:
        labels, needed = pod.metadata.labels, dict[str, str]()
        for wanted in self._services.get(namespace, ()):
            if all(labels.get(key) == text for key, text in wanted):
                needed.update(wanted)
        own = self._controller_selector(f"{namespace}/{name}", owner, needed)
        selector = narrowed(EVERYTHING, IN, tuple(needed), needed)
        if own is not None:
            selector = Selector(tuple(sorted({*selector.requirements, *own.requirements})), nothing=own.nothing)
        return None if selector == EVERYTHING else selector

    def _controller_selector(self, key: str, owner: _Key, needed: dict[str, str]) -> Selector | None:
        """Return the selector of a pod's controller; that of a ReplicationController is added to ``needed`` instead."""
        if owner == _CONTROLLER:
            controller = self._session.objects(owner[0], ReplicationController).get(key)
            needed.update((controller.spec.selector or {}) if controller is not None else {})
        if owner not in _SETS:
            return None
        found = self._session.objects(owner[0], _SETS[owner]).get(key)
        if found is None:
            return None
        try:
            selector = LabelSelector.compile(found.spec.selector)
        except SelectorError:
            return None  # as in kube-scheduler; the API server admits no such selector
        return None if selector.nothing else selector
