"""PodGroups of a checkpoint as a table: equal specs are stored once, and a state loads all groups at once."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

from vcd.model.objects import ObjectMeta, PodGroup, PodGroupSpec, PodGroupStatus
from vcd.model.projection_codec import encode_payload
from vcd.state.interning import DistinctValues
from vcd.state.records import encoded_spec


class GroupTable(msgspec.Struct, array_like=True):
    """PodGroups in the order of their keys, a column per field.

    ``spec_of`` are indexes into ``specs``. ``digests`` are those of the last payloads.
    """

    metas: list[ObjectMeta] = []
    statuses: list[PodGroupStatus] = []
    digests: list[int] = []
    spec_of: list[int] = []
    specs: list[PodGroupSpec] = []

    def groups(self) -> Iterator[PodGroup]:
        """Yield the groups."""
        specs = self.specs
        rows = zip(self.metas, self.spec_of, self.statuses, strict=True)
        return (PodGroup(meta, specs[spec], status) for meta, spec, status in rows)


class GroupTableMaker:
    """Builds a table of PodGroups that are added one by one, in the order of their keys."""

    def __init__(self) -> None:
        self._table = GroupTable()
        self._specs: DistinctValues[PodGroupSpec] = DistinctValues(encoded_spec)

    def add(self, key: str, group: PodGroup, digest: int) -> bytes | None:
        """Add a group, or return its payload if it is stored under another key and cannot be added."""
        if key != group.key:
            return encode_payload(group)
        table = self._table
        table.metas.append(group.metadata)
        table.statuses.append(group.status)
        table.digests.append(digest)
        table.spec_of.append(self._specs.place(group.spec))
        return None

    def table(self) -> GroupTable:
        """Return the table of all added groups."""
        self._table.specs = self._specs.values
        return self._table
