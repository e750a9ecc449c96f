"""Admitted groups without pods: since when they reserve resources, and which reservations ended (docs/laws.md, law 8).

A group with minResources is listed here while it is Inqueue and no pod names it. The session that finds it listed for
``Settings.admission_timeout`` ends its reservation (``Plan.lapsed``). The group stays Inqueue: its pods are placed as
those of any admitted group when they come, and from then on it reserves again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from vcd.model.status import Phase
from vcd.state.holds import Hold, HoldKind
from vcd.state.records import GroupRecord

_SECOND = 1_000_000_000


class PodlessAdmission(msgspec.Struct, frozen=True, omit_defaults=True):
    """An admission without pods: ``since`` when (ns since the epoch; 0: not known before the next session), and whether
    its reservation ``ended``."""

    since: int
    ended: bool = False

    def due(self, timeout: int) -> int:
        """Return when the reservation ends (ns since the epoch); 0 where it has ended, or no time is known.

        Args:
            timeout: ``Settings.admission_timeout`` in seconds, 0 for never.
        """
        return 0 if self.ended or not (self.since and timeout) else self.since + timeout * _SECOND


def reserves_without_pods(record: GroupRecord | None, has_pods: bool) -> bool:
    """Return whether a group is admitted and states minimum resources, and no pod names it."""
    if record is None or has_pods:
        return False
    return record.phase is Phase.INQUEUE and record.min_resources is not None


def admission_holds(
    admissions: Mapping[str, PodlessAdmission], groups: Mapping[str, GroupRecord], timeout: int
) -> Iterator[Hold]:
    """Yield the reservations of admitted groups without pods that have not ended."""
    for key, admission in admissions.items():
        record = groups.get(key)
        if record is not None and record.min_resources and not admission.ended:
            yield Hold(HoldKind.ADMISSION, key, key, "", record.min_resources, admission.due(timeout))
