"""The address on which other replicas reach this one."""

from __future__ import annotations

import re
import socket

import pytest
from aiohttp import web

from vcd.daemon.addresses import AddressError
from vcd.daemon.replicas import network


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
