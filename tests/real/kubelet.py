"""The kubelets of all nodes, as far as a scheduler sees them: pods bound to a node run, end, and are gone when deleted.

A pod ends after the seconds in its annotation ``vcd.sim/run-seconds``, with the code in ``vcd.sim/exit-code``: those of
the embedded cluster's kubelets.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

from vcd.embedded.kubelet import EXIT_CODE, RUN_SECONDS, START_DELAY
from vcd.kube.api_errors import ApiError, NoResponse
from vcd.kube.client import JSON, STRATEGIC_PATCH, KubeClient

Obj = dict[str, Any]
PARALLEL = 16


class Kubelet:
    """Told of each pod as it is now, by ``see``; does its writes in tasks of its own."""

    def __init__(self, client: KubeClient) -> None:
        self._client = client
        self._doing: dict[str, asyncio.Task[None]] = {}
        """By UID and what is done: each thing once."""
        self._places = asyncio.Semaphore(PARALLEL)
        self._addresses = 0

    def see(self, event: str, pod: Obj) -> None:
        """A pod was added, modified or deleted."""
        meta, status = pod["metadata"], pod.get("status", {})
        if event == "DELETED" or not pod["spec"].get("nodeName"):
            return
        if meta.get("deletionTimestamp"):
            self._once(pod, "remove", self._remove(pod))
        elif status.get("phase") == "Pending":
            self._once(pod, "run", self._run(pod))
        elif status.get("phase") == "Running" and RUN_SECONDS in meta.get("annotations", {}):
            self._once(pod, "end", self._end(pod))

    async def stop(self) -> None:
        """End all that is under way."""
        for task in self._doing.values():
            task.cancel()
        for done in await asyncio.gather(*self._doing.values(), return_exceptions=True):
            if isinstance(done, Exception):
                raise done

    def _once(self, pod: Obj, what: str, work: Any) -> None:
        key = f"{pod['metadata']['uid']}/{what}"
        if key in self._doing:
            work.close()
        else:
            self._doing[key] = asyncio.get_running_loop().create_task(work)

    async def _run(self, pod: Obj) -> None:
        await asyncio.sleep(START_DELAY)
        self._addresses += 1
        address = f"10.{self._addresses >> 16 & 255}.{self._addresses >> 8 & 255}.{self._addresses & 255}"
        await self._tell(pod, {
            "phase": "Running", "podIP": address, "podIPs": [{"ip": address}], "hostIP": "127.0.0.1",
            "startTime": pod["metadata"]["creationTimestamp"],
            "conditions": [{"type": kind, "status": "True"} for kind in ("Ready", "ContainersReady", "Initialized")],
            "containerStatuses": [
                {**_container(each), "ready": True, "state": {"running": {}}} for each in pod["spec"]["containers"]
            ],
        })  # fmt: skip

    async def _end(self, pod: Obj) -> None:
        annotations = pod["metadata"]["annotations"]
        await asyncio.sleep(float(annotations[RUN_SECONDS]))
        code = int(annotations.get(EXIT_CODE, "0"))
        await self._tell(pod, {
            "phase": "Failed" if code else "Succeeded",
            "conditions": [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [
                {**_container(each), "ready": False, "state": {"terminated": {"exitCode": code}}}
                for each in pod["spec"]["containers"]
            ],
        })  # fmt: skip

    async def _remove(self, pod: Obj) -> None:
        """Its containers take their whole time to end, as those do that do not listen."""
        await asyncio.sleep(pod["metadata"].get("deletionGracePeriodSeconds", 0))
        options = {"gracePeriodSeconds": 0, "preconditions": {"uid": pod["metadata"]["uid"]}}
        await self._ask("DELETE", _path(pod), options, JSON)

    async def _tell(self, pod: Obj, status: Obj) -> None:
        body = {"metadata": {"uid": pod["metadata"]["uid"]}, "status": status}
        await self._ask("PATCH", f"{_path(pod)}/status", body, STRATEGIC_PATCH)

    async def _ask(self, method: str, path: str, body: Obj, content_type: str) -> None:
        """Raises ApiError, and NoResponse where a server that has much to do did not answer the second time either."""
        async with self._places:
            try:
                try:
                    await self._client.request(method, path, json.dumps(body).encode(), content_type=content_type)
                except NoResponse:
                    await self._client.request(method, path, json.dumps(body).encode(), content_type=content_type)
            except ApiError as error:
                another = error.status == 422 and "metadata.uid" in error.message  # so it says of a status
                if error.status not in (404, 409) and not another:  # gone, or another of its name
                    raise


def _container(spec: Obj) -> Obj:
    return {"name": spec["name"], "image": spec["image"], "imageID": "", "restartCount": 0}


def _path(pod: Obj) -> str:
    return f"/api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"
