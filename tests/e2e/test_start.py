"""A start: nothing is decided before everything is known (pains 14), and what was known before goes on."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from tests.e2e.cluster import Cluster, pod, until


async def test_a_gang_is_placed(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        keys = cluster.submit("gang", 10)
        await cluster.start("a")
        await cluster.until_bound(keys)
