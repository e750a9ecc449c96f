"""End reservations of admitted groups with fewer pods than minMember after ``Settings.admission_timeout``."""

from __future__ import annotations

from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.session.session import Session

_LAPSED = ReasonCode(
    "admission-lapsed",
    Cause.PODS_MISSING,
    "it was admitted, and has fewer pods than its minimum for {timeout} s: other groups may have what it had reserved",
    mend="whatever makes the pods of the group (a controller) has to make them, or delete the group",
)


def end_reservations(session: Session) -> None:
    """Record groups whose reservation ends in this session (``Plan.lapsed``); note it on groups without reservation."""
    snapshot, columns = session.snapshot, session.jobs
    timeout = snapshot.settings.admission_timeout
    for key, admission in sorted(snapshot.admissions.items()):
        index = columns.index(key)
        if index is None:
            continue
        if 0 < admission.due(timeout) <= session.now:
            session.lapsed.append(key)
        elif not admission.ended:
            continue
        session.job(index).note("enqueue", "", _LAPSED({"timeout": str(timeout)}))
