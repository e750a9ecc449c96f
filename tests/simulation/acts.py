"""All that a script can let happen, by name."""

from __future__ import annotations

from collections.abc import Callable

from tests.simulation import faults, workload

ACTS: dict[str, Callable[..., None]] = {**workload.ACTS, **faults.ACTS}
