"""PodGroups in a checkpoint, as a table: specs that many have are there once, and a state takes all over at once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vcd.model.codec import encode_payload
from vcd.model.objects import ObjectMeta, PodGroup, PodGroupSpec, PodGroupStatus
from vcd.state.interning import Shared
from vcd.state.records import encoded_spec


class GroupTable(msgspec.Struct, array_like=True):
    """PodGroups in the order of their keys, a column a field; ``spec_of`` are places among ``specs``, ``digests`` those
    of their last payloads."""

    metas: list[ObjectMeta] = []
    statuses: list[PodGroupStatus] = []
    digests: list[int] = []
    spec_of: list[int] = []
    specs: list[PodGroupSpec] = []

    def groups(self) -> Iterator[PodGroup]:
        """The groups."""
        specs = self.specs
        rows = zip(self.metas, self.spec_of, self.statuses, strict=True)
        return (PodGroup(meta, specs[spec], status) for meta, spec, status in rows)


class GroupTableMaker:
    """Makes a table of PodGroups that are given one by one, in the order of their keys."""

    def __init__(self) -> None:
        self._table = GroupTable()
        self._specs: Shared[PodGroupSpec] = Shared(encoded_spec)

    def add(self, key: str, group: PodGroup, digest: int) -> bytes | None:
        """Add a group; the payload instead of one that goes by another key than its own."""
        if key != group.key:
            return encode_payload(group)
        table = self._table
        table.metas.append(group.metadata)
        table.statuses.append(group.status)
        table.digests.append(digest)
        table.spec_of.append(self._specs.place(group.spec))
        return None

    def table(self) -> GroupTable:
        """All that were added."""
        self._table.specs = self._specs.values
        return self._table
