"""What the state and a session keep of each pod of a flood."""

from __future__ import annotations

import gc
import tracemalloc
from itertools import islice

from bench.hostile import ATTACKS
from bench.steady import Scheduler, running_jobs

_PODS = 50
_MOST = 110 * 1024
"""Bytes of a running pod with 100 required terms that no other pod has: 101 KiB, and 167 KiB if each term had counts, a
scope and texts of its own."""


def test_terms_of_running_pods_share_what_is_equal() -> None:
    scheduler = Scheduler(running_jobs(0, 20))
    objects = ATTACKS["1,000 running pods with 100 required terms"](20)

    def session(pods: int) -> None:
        scheduler.put(islice(objects, 2 * pods))
        scheduler.create_job()
        scheduler.fold(*scheduler.decide())
        gc.collect()

    session(1)
    tracemalloc.start()
    try:
        session(_PODS)
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert kept / _PODS < _MOST
