"""Deletes Events after an hour, as an API server does (kube-apiserver ``--event-ttl``)."""

from __future__ import annotations

from typing import Final

from vcd.embedded.cluster_clock import ClusterClock
from vcd.embedded.controllers.controller_base import EVENTS, Key, Obj, key_of
from vcd.embedded.store import Store

TTL: Final = 3600.0
"""Seconds of cluster time between the last write of an Event and its deletion."""
_LOOK: Final = 600.0
"""Seconds between two checks."""


class EventExpiry:
    """Notes when Events are written, and deletes expired ones."""

    def __init__(self, store: Store, clock: ClusterClock) -> None:
        self._store = store
        self._clock = clock
        self._written: dict[Key, float] = {}
        """Time of each Event's last write, the oldest first."""
        for event in store.list(EVENTS):
            self._changed("ADDED", EVENTS, event)
        store.subscribe([EVENTS], self._changed)

    def _changed(self, change: str, _: str, event: Obj) -> None:
        key = key_of(event)
        self._written.pop(key, None)
        if change != "DELETED":
            self._written[key] = self._clock.now()

    def start(self) -> None:
        """Check periodically, in the background: the cluster counts as idle nevertheless."""
        self._clock.call_later(_LOOK, self._delete_expired, background=True)

    def _delete_expired(self) -> None:
        due = self._clock.now() - TTL
        for key in [key for key, written in self._written.items() if written <= due]:
            self._store.delete(EVENTS, *key)
        self.start()
