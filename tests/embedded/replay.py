"""Replays recorded exchanges against the embedded API server and says where an answer differs.

What differs from run to run is matched by form, and carried over into later requests: UIDs, resourceVersions, times,
generated names, continue tokens, addresses, and the numbers in messages about versions.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import aiohttp

from tests.embedded.disturbed import DisturbedServer
from tests.waiting import WAIT_LIMIT
from vcd.embedded.store import Store

DATA = Path(__file__).parent.parent / "data" / "apiserver" / "exchanges.json"
TOKEN = "recorded"
COMPACTED_BEFORE_LAST = 3

_TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_GENERATED = re.compile(r"g-gen-[a-z0-9]{5}")
_VERSION_TEXT = re.compile(r"(too old resource version: \d+ \()\d+|(current: )\d+")
_BY_FORM = {
    "uid": _UID, "resourceVersion": re.compile(r"\d+"), "continue": re.compile(r"[A-Za-z0-9_-]+"),
    "serverAddress": re.compile(r"[\w.:-]+"),
}  # fmt: skip
# The recorder put the status that it was about to write into its copy of this answer before writing it down: the
# entry before has the same resourceVersion and no status.
CHANGED_BY_THE_RECORDER = {"get PodGroup": "status"}
# The text after the first sentence is Go's dump of internal structures.
_FIRST_SENTENCE = "change an immutable field"

Entry = dict[str, Any]


class Replay:
    """One run through the recording; ``known`` maps recorded values to this run's."""

    def __init__(self, url: str, session: aiohttp.ClientSession, store: Store) -> None:
        self._url = url
        self._session = session
        self._store = store
        self.known: dict[str, str] = {}

    def _carried(self, text: str) -> str:
        for recorded, ours in self.known.items():
            text = re.sub(rf"(?<![\w-]){re.escape(recorded)}(?![\w-])", ours, text)
        return text

    def _request(self, entry: Entry) -> tuple[str, str, dict[str, str], bytes | None]:
        asked = entry["request"]
        headers = {"Authorization": f"Bearer {TOKEN}", **(asked.get("headers") or {})}
        raw = asked.get("rawBody")
        if raw is None and asked.get("body") is not None:
            raw = self._carried(json.dumps(asked["body"]))
        return asked["method"], self._url + self._carried(asked["path"]), headers, raw.encode() if raw else None

    async def run(self, entries: list[Entry]) -> list[list[str]]:
        """The differences of each entry, in order."""
        opened: dict[int, aiohttp.ClientResponse] = {}
        found = []
        for index, entry in enumerate(entries):
            if index == len(entries) - COMPACTED_BEFORE_LAST:
                self._store.compact()
            for later in range(index, len(entries)):
                if entries[later].get("during", [None])[0] == index:
                    opened[later] = await self._send(entries[later])
            response = opened.pop(index) if index in opened else await self._send(entry)
            async with response:
                found.append([part async for part in self._differences(entry, response)])
        return found

    async def _send(self, entry: Entry) -> aiohttp.ClientResponse:
        method, url, headers, body = self._request(entry)
        return await self._session.request(method, _raw_url(url), headers=headers, data=body)

    async def _differences(self, entry: Entry, response: aiohttp.ClientResponse) -> Any:
        wanted = entry["response"]
        if response.status != wanted["status"]:
            yield f"status {response.status} instead of {wanted['status']}: {await response.text()}"
            return
        if response.headers["Content-Type"] != wanted["contentType"]:
            yield f"content type {response.headers['Content-Type']} instead of {wanted['contentType']}"
        for key, header in (("warning", "Warning"), ("retryAfter", "Retry-After")):
            if response.headers.get(header) != wanted.get(key):
                yield f"{header}: {response.headers.get(header)} instead of {wanted.get(key)}"
        if "watch" in wanted:
            lines = await self._lines(response, len(wanted["watch"]), ends="timeoutSeconds" in entry["request"]["path"])
            for part in self.compare(wanted["watch"], lines, ""):
                yield part
            return
        text = await response.text()
        ours = json.loads(text) if "json" in wanted["contentType"] else text
        expected = _expected(entry)
        for part in self.compare(expected, _cut(ours, expected) if entry.get("cut") else ours, ""):
            yield part

    async def _lines(self, response: aiohttp.ClientResponse, count: int, *, ends: bool) -> list[Any]:
        lines = []
        while ends or len(lines) < count:
            line = await asyncio.wait_for(response.content.readline(), WAIT_LIMIT)
            if not line:
                break
            lines.append(json.loads(line))
        return lines

    def compare(self, wanted: Any, ours: Any, path: str) -> Iterator[str]:
        """The differences between a recorded value and this run's."""
        if isinstance(wanted, dict) and isinstance(ours, dict):
            for key in sorted(wanted.keys() | ours.keys()):
                where = f"{path}.{key}"
                if key not in ours:
                    yield f"{where}: missing, recorded {json.dumps(wanted[key])}"
                elif key not in wanted:
                    yield f"{where}: {json.dumps(ours[key])} was not recorded"
                elif key in _BY_FORM and wanted[key] != ours[key]:
                    if not _BY_FORM[key].fullmatch(str(ours[key])):
                        yield f"{where}: {ours[key]!r} is not of the form of {wanted[key]!r}"
                    elif key != "serverAddress":
                        self.known[wanted[key]] = ours[key]
                else:
                    yield from self.compare(wanted[key], ours[key], where)
        elif isinstance(wanted, list) and isinstance(ours, list):
            if len(wanted) != len(ours):
                yield f"{path}: {len(ours)} items instead of {len(wanted)}: {json.dumps(ours)[:300]}"
            for index, (left, right) in enumerate(zip(wanted, ours, strict=False)):
                yield from self.compare(left, right, f"{path}[{index}]")
        elif wanted != ours and not self._same_form(wanted, ours):
            yield f"{path}: {json.dumps(ours)} instead of {json.dumps(wanted)}"

    def _same_form(self, wanted: Any, ours: Any) -> bool:
        if not isinstance(wanted, str) or not isinstance(ours, str):
            return False
        if _TIME.fullmatch(wanted):
            return _TIME.fullmatch(ours) is not None
        if _GENERATED.fullmatch(wanted) and _GENERATED.fullmatch(ours):
            self.known[wanted] = ours
            return True
        if re.fullmatch(r"\d+[smh]", wanted):
            return re.fullmatch(r"\d+[smh]", ours) is not None
        number = r"\1\2#"
        return _VERSION_TEXT.sub(number, self._carried(wanted)) == _VERSION_TEXT.sub(number, ours)


def _raw_url(url: str) -> Any:
    from yarl import URL

    return URL(url, encoded=True)


def _expected(entry: Entry) -> Any:
    body = entry["response"].get("body")
    if entry["name"] in CHANGED_BY_THE_RECORDER:
        return {key: value for key, value in body.items() if key != CHANGED_BY_THE_RECORDER[entry["name"]]}
    if entry["name"] == _FIRST_SENTENCE:
        return json.loads(re.sub(r"\\n@@.*?(?=\")(?<!\\)", "", json.dumps(body)))
    return body


def _cut(ours: Any, recorded: Any) -> Any:
    """This run's answer cut as the recorded one: items to names, discovery to the groups and resources in it."""
    if not isinstance(ours, dict):
        return ours
    cut = dict(ours)
    if "items" in recorded and recorded["kind"].endswith("List") and "apidiscovery" not in recorded["apiVersion"]:
        cut["items"] = [{"metadata": {"name": item["metadata"]["name"]}} for item in ours["items"]]
        return cut
    for member, name in (("groups", "name"), ("resources", "name"), ("items", "metadata")):
        if member in recorded:
            mine = {json.dumps(item[name]): item for item in ours[member]}
            cut[member] = [mine[json.dumps(item[name])] for item in recorded[member] if json.dumps(item[name]) in mine]
    return cut


async def replay() -> list[tuple[str, list[str]]]:
    """(name, differences) of every recorded exchange."""
    entries = json.loads(DATA.read_text())
    store = Store()
    server = DisturbedServer(store, tokens={TOKEN: "recorder"})
    await server.start("127.0.0.1", 0)
    try:
        async with aiohttp.ClientSession() as session:
            found = await Replay(server.url, session, store).run(entries)
    finally:
        await server.stop()
    return [(entry["name"], differences) for entry, differences in zip(entries, found, strict=True)]
