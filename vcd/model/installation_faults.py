"""Faults of the installation: what keeps vcd from its work and is not caused by a job.

One table, read by the daemon and by readers of the log. A new fault needs a row here, and a check in
`vcd.daemon.faults.fault_monitor.FaultMonitor` that finds it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from vcd.model.events import InstallationFault
from vcd.model.wording import counted

UNREACHABLE: Final = "unreachable"
WRITE_REFUSED: Final = "write-refused"
WRITE_UNANSWERED: Final = "write-unanswered"
KIND_NOT_LISTED: Final = "kind-not-listed"
IDENTITY_SHARED: Final = "identity-shared"
CONFIGURATION_REFUSED: Final = "configuration-refused"
OTHER_SCHEDULER: Final = "other-scheduler"
NO_NODE: Final = "no-node"
NO_GROUP: Final = "no-group"
NO_PODS: Final = "no-pods"
JOBS_NOT_STARTED: Final = "jobs-not-started"

NAMESPACE: Final = "namespace"
OTHERS: Final = "(others)"
"""The subject for what exceeds `MOST_SUBJECTS`: counted, not listed."""
MOST_SUBJECTS: Final = 20
"""Maximum number of subjects of one code: tenants may create any number of namespaces."""


class FaultCode(NamedTuple):
    """A kind of fault: ``what`` is wrong, what the ``subject`` of such a fault is, and what to ``do``.

    ``event`` is the reason of the Event on the configuration, empty if objects have Events of their own. ``not_ready``
    makes the replica fail /readyz.
    """

    what: str
    subject: str
    do: str
    event: str = ""
    not_ready: bool = False


FAULTS: Final = {
    UNREACHABLE: FaultCode(
        "the API server does not answer",
        "API server",
        "look at the API server, and at the network and the certificates between it and vcd",
    ),
    WRITE_REFUSED: FaultCode(
        "the API server refuses a write",
        "verb, resource and HTTP status",
        "give vcd's ServiceAccount the right, or repair the webhook or CRD that the answer names",
        "WriteRefused",
    ),
    WRITE_UNANSWERED: FaultCode(
        "the API server does not answer a write, while it answers other requests",
        "verb and resource",
        "look for a webhook for such writes that does not answer "
        "(kubectl get validatingwebhookconfigurations,mutatingwebhookconfigurations)",
        "WriteUnanswered",
    ),
    KIND_NOT_LISTED: FaultCode(
        "a kind cannot be listed",
        "kind",
        "apply the CRDs, and the role in deploy/",
        "KindNotListed",
        not_ready=True,
    ),
    IDENTITY_SHARED: FaultCode(
        "two replicas have one identity, so neither leads for long",
        "Lease",
        "give each its own --identity, or none: the default is unique",
        "IdentityShared",
        not_ready=True,
    ),
    CONFIGURATION_REFUSED: FaultCode(
        "the configuration file is refused, and the last good one stays in force",
        "flag",
        "correct the file (vcd conf check FILE)",
    ),
    OTHER_SCHEDULER: FaultCode(
        "another scheduler binds pods of vcd's schedulerName, and vcd holds back the namespace",
        NAMESPACE,
        "stop the other scheduler, or give it other pods by another schedulerName",
    ),
    NO_NODE: FaultCode(
        "jobs wait and there is no node for them",
        "flag, or cluster",
        "add nodes, or correct --node-selector",
        "NoNode",
    ),
    NO_GROUP: FaultCode(
        "pods belong to no PodGroup, so no session considers them",
        NAMESPACE,
        "look whether Volcano's controllers run, or use vcd run --controllers=podgroup",
    ),
    NO_PODS: FaultCode(
        "PodGroups are admitted and their pods are not created",
        NAMESPACE,
        "look whether the controller that makes the pods runs, and at its Events",
    ),
    JOBS_NOT_STARTED: FaultCode(
        "no controller starts Volcano Jobs, so they have no PodGroup and no pods",
        NAMESPACE,
        "look whether Volcano's controllers run, and at their logs",
        "JobsNotStarted",
    ),
}
"""By code. Texts list faults in this order."""


def fault_in_words(fault: InstallationFault, *, named: bool = True) -> str:
    """Format a fault as one error: what is wrong, where (if ``named``), and what to do."""
    known = FAULTS.get(fault.code)
    what = fault.code if known is None else known.what  # a newer vcd may know more codes
    where = f": {fault.subject}: {fault.message}" if named else ""
    return f"{what}{where}" + ("" if known is None else f"; {known.do}")


def faults_in_words(faults: Iterable[InstallationFault], *, named: bool = True) -> list[str]:
    """Return one line per code, in the order of the table: its first subject, and how many more there are."""
    by_code: dict[str, list[InstallationFault]] = {code: [] for code in FAULTS}
    for fault in sorted(faults, key=lambda fault: (fault.subject == OTHERS, fault.subject)):
        by_code.setdefault(fault.code, []).append(fault)
    lines = []
    for first, *others in filter(None, by_code.values()):
        more = f" ({counted(len(others), 'more subject')})" if others else ""
        lines.append(fault_in_words(first, named=named) + more)
    return lines
