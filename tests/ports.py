"""Ports for processes that are told where to listen, and begin to do so only later."""

from __future__ import annotations

import atexit
import collections
import random
import socket
from collections.abc import Sequence

_PORTS: Sequence[int] = range(10_240, 30_000)
"""Below those that Linux gives to outgoing connections and to who asks for port 0 (``ip_local_port_range``)."""
_CHOICE = random.Random()  # its own, so that a test that seeds chance does not choose the ports
_HELD: collections.deque[socket.socket] = collections.deque()
"""UDP sockets of the ports given last: other processes that look for a port pass them over, TCP does not mind."""
_HELD_AT_MOST = 64


def free_port() -> int:
    """A TCP port of 127.0.0.1 that nobody has, and that no process of the tests is given while it is held (``_HELD``).

    Raises
    ------
    OSError
        No port is free.
    """
    for port in _CHOICE.sample(_PORTS, len(_PORTS)):
        held = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        with socket.socket() as probe:
            try:
                held.bind(("127.0.0.1", port))
                probe.bind(("0.0.0.0", port))
            except OSError:
                held.close()
                continue
        _HELD.append(held)
        _let_go(_HELD_AT_MOST)
        return port
    raise OSError(f"no port of 127.0.0.1 between {_PORTS[0]} and {_PORTS[-1]} is free")


@atexit.register
def _let_go(at_most: int = 0) -> None:
    while len(_HELD) > at_most:
        _HELD.popleft().close()
