"""The names of jobs for readers."""

from __future__ import annotations

import re

ANOTHER = "a job of another namespace"
"""The name of a job whose real name may not be reported."""
UID = re.compile(r"-[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
"""The suffix of the group's name of a Volcano Job."""


def without_uid(key: str) -> str:
    """Return the name of a job, or of its pods, that users know: for a Volcano Job's group without the UID."""
    name = UID.sub("", key)
    return key if name.endswith("/podgroup") else name
