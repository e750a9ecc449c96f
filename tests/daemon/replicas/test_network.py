"""The address on which other replicas reach this one."""

from __future__ import annotations

import re
import socket

import pytest
from aiohttp import web

from vcd.daemon.addresses import AddressError
from vcd.daemon.replicas import network
from vcd.daemon.replicas.identity import Address
from vcd.eventlog.errors import LogError


async def nobody(_: web.Request) -> web.StreamResponse:
    raise AssertionError("nobody comes")


@pytest.mark.parametrize(("host", "written"), [("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_an_address_in_use_is_named_with_its_flag(host: str, written: str) -> None:
    with socket.create_server((host, 0), family=socket.AF_INET6 if ":" in host else socket.AF_INET) as holder:
        port = holder.getsockname()[1]
        words = re.escape(f"--replicas-address={written}:{port}: address already in use; end who has it")
        with pytest.raises(AddressError, match=f"^{words}"):
            async with network.listening("a", host, port, "127.0.0.1", nobody, ()):
                pass


async def test_who_shows_another_certificate_is_not_followed() -> None:
    async with network.listening("a", "127.0.0.1", 0, "127.0.0.1", nobody, ()) as address:
        other = Address(address.url, bytes(32))
        with pytest.raises(LogError, match=f"^{address.url} shows another certificate: it began anew, or is somebody"):
            async with network.reached(other, {}):
                pass
