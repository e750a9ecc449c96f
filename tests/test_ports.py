"""A port that a test is given is nobody else's until who it is for listens there."""

import socket
from collections.abc import Iterator

import pytest

from tests import ports
from tests.ports import free_port


@pytest.fixture
def three(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """Only three ports are there to be given."""
    few = sorted(free_port() for _ in range(3))
    ports._let_go()
    monkeypatch.setattr(ports, "_PORTS", few)
    yield few
    ports._let_go()


def test_a_port_is_given_once_and_who_it_is_for_can_listen_there(three: list[int]) -> None:
    given = [free_port() for _ in three]
    assert sorted(given) == three
    for port in given:
        with socket.create_server(("127.0.0.1", port)):
            pass
    with pytest.raises(OSError, match=f"between {three[0]} and {three[-1]} is free"):
        free_port()


def test_a_port_of_another_process_is_passed_over(three: list[int]) -> None:
    with socket.create_server(("127.0.0.1", three[0])), socket.socket(type=socket.SOCK_DGRAM) as held:
        held.bind(("127.0.0.1", three[1]))  # as another test process does with a port that it has just given
        assert free_port() == three[2]
