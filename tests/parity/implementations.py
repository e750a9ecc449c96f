"""What can be held against the oracle."""

from __future__ import annotations

import datetime
from typing import Any

from tests.parity.cases import Implementation, Outcome


def reference(objects: list[dict[str, Any]], conf: str, now: datetime.datetime, seed: int) -> Outcome:
    """The slow reference of the test suite, as near to Volcano as it can be."""
    from tests.reference import decide

    return decide(objects, conf, now, seed, pains=False)


def vcd(objects: list[dict[str, Any]], conf: str, now: datetime.datetime, seed: int) -> Outcome:
    """The library's public plan()."""
    from vcd import plan

    return plan(objects, conf, now, seed)


IMPLEMENTATIONS: dict[str, Implementation] = {"reference": reference, "vcd": vcd}
