"""The SQL of the event log, from ``sql/*.sql``. Each statement follows a line ``-- name: NAME``."""

from __future__ import annotations

from functools import cache
from importlib import resources


@cache
def statements(group: str) -> dict[str, str]:
    """Return the statements of the file ``sql/<group>.sql``, by name."""
    text = (resources.files("vcd.eventlog") / "sql" / f"{group}.sql").read_text(encoding="utf-8")
    parts = text.split("-- name: ")[1:]
    named = (part.partition("\n") for part in parts)
    return {name.strip(): body.strip() for name, _, body in named}
