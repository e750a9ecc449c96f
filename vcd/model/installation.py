"""Faults of the installation: what keeps vcd from its work and is no job's doing. One table, read by the daemon and by
readers of the log.

A new fault is a row here, and a look at `vcd.daemon.installation.Installation` that finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from vcd.model.events import InstallationFault
from vcd.model.words import counted

WRITE_REFUSED: Final = "write-refused"
KIND_NOT_LISTED: Final = "kind-not-listed"
NO_GROUP: Final = "no-group"

NAMESPACE: Final = "namespace"
OTHERS: Final = "(others)"
"""The subject for what exceeds `MOST_SUBJECTS`: counted, not listed."""
MOST_SUBJECTS: Final = 20
"""Subjects of one code at most: tenants make as many namespaces as they like."""


class FaultCode(NamedTuple):
    """``what`` is wrong, what the ``subject`` of such a fault is, and what to ``do``.

    ``event`` is the reason of the Event where the configuration is, empty where objects have Events of their own.
    ``not_ready`` makes the replica fail /readyz.
    """

    what: str
    subject: str
    do: str
    event: str = ""
    not_ready: bool = False


FAULTS: Final = {
    WRITE_REFUSED: FaultCode(
        "the API server refuses a write",
        "verb, resource and HTTP status",
        "give vcd's ServiceAccount the right, or repair the webhook or CRD that the answer names",
        "WriteRefused",
    ),
    KIND_NOT_LISTED: FaultCode(
        "a kind cannot be listed",
        "kind",
        "apply the CRDs, and the role in deploy/",
        "KindNotListed",
        not_ready=True,
    ),
    NO_GROUP: FaultCode(
        "pods belong to no PodGroup, so no session considers them",
        NAMESPACE,
        "look whether Volcano's controllers run, or use vcd run --controllers=podgroup",
    ),
}
"""By code. Texts list faults in this order."""


def fault_in_words(fault: InstallationFault, *, named: bool = True) -> str:
    """Return a fault as one error: what is wrong, where if it is to be ``named``, and what to do."""
    known = FAULTS.get(fault.code)
    what = fault.code if known is None else known.what  # a newer vcd may know more codes
    where = f": {fault.subject}: {fault.message}" if named else ""
    return f"{what}{where}" + ("" if known is None else f"; {known.do}")


def faults_in_words(faults: Iterable[InstallationFault], *, named: bool = True) -> list[str]:
    """Return one line a code, in the order of the table: its first subject, and how many more there are."""
    by_code: dict[str, list[InstallationFault]] = {code: [] for code in FAULTS}
    for fault in sorted(faults, key=lambda fault: (fault.subject == OTHERS, fault.subject)):
        by_code.setdefault(fault.code, []).append(fault)
    lines = []
    for first, *others in filter(None, by_code.values()):
        more = f" ({counted(len(others), 'more subject')})" if others else ""
        lines.append(fault_in_words(first, named=named) + more)
    return lines
