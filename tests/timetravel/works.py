"""Work for processes of their own, which find it by its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import count

from vcd.timetravel.parallel import Part

Numbers = Callable[[Part], Iterator[int]]


@contextmanager
def counting(broken: int = -1, gone: int = -1) -> Iterator[Numbers]:
    """The numbers of a part; ``broken`` raises ValueError, at ``gone`` the process ends with 7."""

    def work(part: Part) -> Iterator[int]:
        for number in range(part[0], part[1] + 1):
            if number == gone:
                os._exit(7)
            if number == broken:
                raise ValueError(f"{number} is broken")
            yield number

    yield work


@contextmanager
def endless() -> Iterator[Numbers]:
    """Numbers without end."""
    yield lambda part: count(part[0])


@contextmanager
def stuck() -> Iterator[Numbers]:
    """One number, and then nothing any more."""

    def work(part: Part) -> Iterator[int]:
        yield part[0]
        signal.pause()

    yield work


@contextmanager
def deaf() -> Iterator[Numbers]:
    """1 where Ctrl-C is kept from this process, else 0."""
    yield lambda part: iter([int(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))])
