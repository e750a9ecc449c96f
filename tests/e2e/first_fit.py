"""``python -m tests.e2e.first_fit URL TOKEN PERIOD``: another scheduler of the same name, as simple as can be.

Each period it lists pods and nodes and binds, in the order of their names, every pending pod to the first node (by
name) that has cpu left. It knows no groups, queues, selectors or taints. What ``example.com/not-for-first-fit``
annotates it leaves alone. It ends with its standard input.
"""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import aiohttp

from vcd.model.quantity import resource_value

Obj = dict[str, Any]
LEFT_ALONE = "example.com/not-for-first-fit"


def _cpu(pod: Obj) -> int:
    return sum(resource_value("cpu", one["resources"]["requests"]["cpu"]) for one in pod["spec"]["containers"])


def _is_on(pod: Obj, node: str) -> bool:
    return pod["spec"].get("nodeName") == node and pod.get("status", {}).get("phase") not in ("Succeeded", "Failed")


def decide(pods: list[Obj], nodes: list[Obj]) -> list[tuple[Obj, str]]:
    """Which pods go where."""
    pods = sorted(pods, key=lambda pod: pod["metadata"]["name"])
    free = {
        name: resource_value("cpu", node["status"]["allocatable"]["cpu"])
        - sum(_cpu(pod) for pod in pods if _is_on(pod, name))
        for node in sorted(nodes, key=lambda node: node["metadata"]["name"])
        for name in (node["metadata"]["name"],)
    }
    found = []
    for pod in pods:
        meta, spec = pod["metadata"], pod["spec"]
        if spec.get("nodeName") or spec["schedulerName"] != "volcano" or LEFT_ALONE in meta.get("annotations", {}):
            continue
        node = next((name for name, left in free.items() if left >= _cpu(pod)), None)
        if node is not None:
            free[node] -= _cpu(pod)
            found.append((pod, node))
    return found


async def _bind(session: aiohttp.ClientSession, url: str, pod: Obj, node: str) -> None:
    meta = pod["metadata"]
    body = {
        "apiVersion": "v1",
        "kind": "Binding",
        "metadata": {"name": meta["name"], "namespace": meta["namespace"], "uid": meta["uid"]},
        "target": {"apiVersion": "v1", "kind": "Node", "name": node},
    }
    path = f"{url}/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}/binding"
    async with session.post(path, json=body) as answer:
        await answer.read()  # who was faster has it


async def _listed(session: aiohttp.ClientSession, path: str) -> list[Obj]:
    async with session.get(path) as answer:
        answer.raise_for_status()
        items: list[Obj] = (await answer.json())["items"]
        return items


async def schedule(url: str, token: str, period: float) -> None:
    """Schedule until cancelled."""
    async with aiohttp.ClientSession(headers={"Authorization": f"Bearer {token}"}) as session:
        while True:
            pods, nodes = [await _listed(session, f"{url}/api/v1/{plural}") for plural in ("pods", "nodes")]
            for pod, node in decide(pods, nodes):
                await _bind(session, url, pod, node)
            await asyncio.sleep(period)


async def main(url: str, token: str, period: str) -> None:
    """Schedule until standard input ends."""
    scheduling = asyncio.ensure_future(schedule(url, token, float(period)))
    ended = asyncio.ensure_future(asyncio.to_thread(sys.stdin.read))
    await asyncio.wait([scheduling, ended], return_when=asyncio.FIRST_COMPLETED)
    scheduling.cancel()
    (result,) = await asyncio.gather(scheduling, return_exceptions=True)
    if isinstance(result, Exception):
        raise result


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
