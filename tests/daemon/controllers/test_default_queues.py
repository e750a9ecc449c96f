"""The first queues while the API server does not serve queues; the rest is in tests/e2e/test_first_queues.py."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.kube.scripted import Answer, ScriptedServer, client_of, scripted
from tests.waiting import until
from vcd.daemon.controllers.default_queues import DefaultQueues
from vcd.model.events import KindListed

NOT_SERVED, SERVED = KindListed("Queue", ""), KindListed("Queue", "7")


@asynccontextmanager
async def leading() -> AsyncIterator[tuple[ScriptedServer, DefaultQueues, list[str]]]:
    """The first queues of a replica that leads, in a cluster without any; what is reported as refused."""
    refused: list[str] = []
    async with scripted() as server, client_of(server) as client:
        server.on("POST", "/queues", Answer(201, {}))
        queues = DefaultQueues(client, "default", lambda: (), lambda: True, refused.append)
        task = asyncio.create_task(queues.run())
        try:
            yield server, queues, refused
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


async def test_nothing_is_made_of_a_kind_that_is_not_served() -> None:
    async with leading() as (server, queues, refused):
        queues.observe(NOT_SERVED)
        queues.due.set()
        await until(lambda: not queues.due.is_set(), what="it looked")
        assert (server.seen, refused) == ([], [])


async def test_the_queues_are_made_once_the_kind_is_served_again() -> None:
    async with leading() as (server, queues, _):
        queues.observe(NOT_SERVED)
        queues.observe(SERVED)
        await until(lambda: len(server.seen) == 2, what="both queues are made")
        assert [seen.body["metadata"]["name"] for seen in server.seen] == ["root", "default"]


async def test_a_list_of_a_kind_that_was_served_makes_none() -> None:
    async with leading() as (_, queues, _):
        queues.observe(SERVED)
        assert not queues.due.is_set()
