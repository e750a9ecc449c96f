"""Work for processes of their own, which find it by its name."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from itertools import count

from vcd.timetravel.process_pool import Part


def counting(part: Part, broken: int = -1, gone: int = -1) -> Iterator[int]:
    """The numbers of a part; ``broken`` raises ValueError, at ``gone`` the process ends with 7."""
    for number in range(part[0], part[1] + 1):
        if number == gone:
            os._exit(7)
        if number == broken:
            raise ValueError(f"{number} is broken")
        yield number


def endless(part: Part) -> Iterator[int]:
    """A part's first number twice; of another one than that of 5 numbers without end."""
    return iter((part[0], part[0])) if part[0] == 5 else count(part[0])


def stuck(part: Part) -> Iterator[int]:
    """One number of the first part, and then nothing any more."""
    yield part[0]
    if part[0] != 1:
        signal.pause()


def deaf(part: Part) -> Iterator[int]:
    """1 where Ctrl-C is kept from this process, else 0."""
    return iter([int(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))])
