"""Incomplete admissions: admitted groups without all pods of their minimum (docs/laws.md, law 8).

A group with minResources is listed while it is Inqueue and fewer pods than its minMember belong to it. A session that
finds it listed for ``Settings.admission_timeout`` ends its reservation (``Plan.lapsed``). The group stays Inqueue: once
all pods of its minimum exist, they are placed like those of any admitted group, and it reserves again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from vcd.model.status import Phase
from vcd.model.wording import SECOND
from vcd.state.holds import Hold, HoldKind
from vcd.state.records import GroupRecord


class IncompleteAdmission(msgspec.Struct, frozen=True, omit_defaults=True):
    """An admission without all pods of the minimum.

    ``since``: start in ns since the epoch; 0 if unknown, which the next session replaces. ``ended``: it reserves
    nothing any more.
    """

    since: int
    ended: bool = False

    def due(self, timeout: int) -> int:
        """Return when the reservation ends (ns since the epoch); 0 if it has ended, or the time is unknown.

        Args:
            timeout: ``Settings.admission_timeout`` in seconds, 0 for never.
        """
        return 0 if self.ended or not (self.since and timeout) else self.since + timeout * SECOND


def is_incomplete(record: GroupRecord | None, pods: int) -> bool:
    """Whether a group is admitted, has minimum resources, and has fewer pods than its minimum."""
    if record is None or record.phase is not Phase.INQUEUE or record.min_resources is None:
        return False
    return pods < max(record.group.spec.min_member, 1)


def admission_holds(
    admissions: Mapping[str, IncompleteAdmission], groups: Mapping[str, GroupRecord], timeout: int
) -> Iterator[Hold]:
    """Yield the reservations of incomplete admissions that have not ended."""
    for key, admission in admissions.items():
        record = groups.get(key)
        if record is not None and record.min_resources and not admission.ended:
            yield Hold(HoldKind.ADMISSION, key, key, "", record.min_resources, admission.due(timeout))
