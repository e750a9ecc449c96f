"""A port that a test is given is nobody else's until who it is for listens there."""

import socket
from collections.abc import Iterator

import pytest

from tests import ports
from tests.ports import free_port


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[range]:
    """Only three ports are there to be given."""
    first = next(
        port for port in range(ports._PORTS.start, ports._PORTS.stop, 3) if all(map(_free, range(port, port + 3)))
    )
    few = range(first, first + 3)
    monkeypatch.setattr(ports, "_PORTS", few)
    ports._let_go()
    yield few
    ports._let_go()


def _free(port: int) -> bool:
    with socket.socket() as probe, socket.socket(type=socket.SOCK_DGRAM) as other:
        try:
            probe.bind(("0.0.0.0", port))
            other.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def test_a_port_is_given_once_and_who_it_is_for_can_listen_there(three: range) -> None:
    given = [free_port() for _ in three]
    assert sorted(given) == list(three)
    for port in given:
        with socket.create_server(("127.0.0.1", port)):
            pass
    with pytest.raises(OSError, match=f"between {three.start} and {three.stop - 1} is free"):
        free_port()


def test_a_port_of_another_process_is_passed_over(three: range) -> None:
    with socket.create_server(("127.0.0.1", three[0])), socket.socket(type=socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", three[1]))  # as another test process does with a port that it has just given
        assert free_port() == three[2]
