"""The page in a real Chromium, by keyboard: sessions, queues, nodes, a job's explanation, a session's plan."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest

from tests import dsl
from tests.external.browser import Page, browsing
from tests.timetravel.histories import scheduler, write_busy_history
from tests.view.situations import write_situation
from vcd.kube.access_reviews import User
from vcd.serving.access_rights import Access
from vcd.view.page_server import View

pytestmark = pytest.mark.external

JOBS = "[...document.querySelectorAll('.jobs tbody tr')].map(row => row.innerText)"
OTHERS = "[...document.querySelectorAll('#others tbody tr')].map(row => row.innerText)"
QUEUES = "document.getElementById('queues').innerText"
BARS = "[...document.querySelectorAll('#queues .bar i')].map(bar => bar.getBoundingClientRect().width)"
CAPTION = "document.getElementById('caption').innerText"
SESSIONS = "document.getElementById('sessions')"
DETAIL = "document.getElementById('detail').innerText"
FOCUS = "document.activeElement"


@pytest.fixture
async def page(tmp_path: Path) -> AsyncIterator[Page]:
    """The page of a log of eight sessions, at its last; that it complains of nothing is checked at the end."""
    await write_busy_history(tmp_path / "busy.log")
    async with View(tmp_path / "busy.log") as view, browsing(tmp_path) as page:
        await page.open(view.url)
        await page.until(f"{JOBS}.length > 0")
        yield page
        assert page.complaints == []


async def to_the_slider(page: Page) -> None:
    """Open the sessions, which are closed at first, and go to their slider, by keyboard."""
    await page.tab_to(f"{FOCUS}.tagName === 'SUMMARY' && {FOCUS}.parentElement === {SESSIONS}")
    await page.press("Enter")
    await page.until(f"{SESSIONS}.open")
    await page.tab_to(f"{FOCUS}.id === 'slider'")


async def test_it_shows_the_last_session(page: Page) -> None:
    assert (await page.ask(CAPTION)).startswith("session 8, 2026-01-01 00:11:05: 5 binds")
    assert any(line.startswith("default/large") for line in await page.ask(JOBS))
    assert "default" in await page.ask(QUEUES)
    nodes = await page.ask("[...document.querySelectorAll('#nodes > div')].map(node => node.ariaLabel)")
    assert len(nodes) == 5
    assert nodes[4].startswith("n4: cpu 21 of 24 (88 %)")


async def test_the_arrow_keys_move_the_timeline_and_the_bars_with_it(page: Page) -> None:
    await to_the_slider(page)
    before, bars = await page.ask(QUEUES), await page.ask(BARS)
    await page.press("Home")
    await page.until(f"{CAPTION}.startsWith('session 1, ')")
    await page.until(f"{QUEUES} !== {before!r}")
    assert await page.ask(BARS) != bars
    first = await page.ask(QUEUES)
    await page.press("ArrowRight")
    await page.press("ArrowRight")
    await page.until(f"{CAPTION}.startsWith('session 3, ') && {QUEUES} !== {first!r}")
    assert await page.ask(f"{FOCUS}.getAttribute('aria-valuetext')") == await page.ask(CAPTION)


async def test_a_job_is_explained_by_keyboard_alone(page: Page) -> None:
    await page.tab_to(f"{FOCUS}.dataset.job === 'default/large'")
    await page.press("Enter")
    await page.until(f"{DETAIL}.includes('Waited 11 min: the cluster is full')")
    assert await page.ask(f"{FOCUS}.id") == "detail-heading"
    assert "bound large-0" not in await page.ask(DETAIL)
    await page.tab_to(f"{FOCUS}.tagName === 'SUMMARY' && {FOCUS}.parentElement.id === 'story'")
    await page.press("Enter")
    await page.until(f"{DETAIL}.includes('bound large-0')")
    await page.press("Escape")
    assert await page.ask("document.getElementById('detail').hidden")
    assert await page.ask(f"{FOCUS}.dataset.job") == "default/large"


async def test_a_session_shows_its_plan_and_the_difference_to_the_next(page: Page) -> None:
    await to_the_slider(page)
    await page.press("ArrowLeft")
    await page.until(f"{CAPTION}.startsWith('session 7, ')")
    await page.press("Enter")
    await page.until(f"{DETAIL}.includes('against session 8')")
    told = await page.ask(DETAIL)
    assert "1 group admitted: default/large" in told
    assert "only session 8: bind default/large-0 to n4" in told


async def test_all_controls_are_reached_by_tab_and_have_names(page: Page) -> None:
    await page.ask(f"{SESSIONS}.open = true")
    wanted = await page.ask(
        "[...document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(one => one.offsetParent !== null).length"
    )
    await page.ask("document.body.setAttribute('data-met', '0')")
    for _ in range(wanted + 2):
        await page.press("Tab")
        await page.ask(f"{FOCUS} === document.body || {FOCUS}.setAttribute('data-met', '1')")
    missed = await page.ask(
        "[...document.querySelectorAll('a, button, input, select, summary, [tabindex=\"0\"]')]"
        ".filter(one => one.offsetParent !== null && !one.dataset.met).map(one => one.outerHTML)"
    )
    assert missed == []
    tree = (await page.call("Accessibility.getFullAXTree"))["nodes"]
    roles = ("button", "link", "checkbox", "slider", "combobox", "searchbox", "spinbutton", "listbox", "region")
    unnamed = [
        one for one in tree if one.get("role", {}).get("value") in roles and not one.get("name", {}).get("value")
    ]
    assert unnamed == []


async def test_an_address_names_what_is_shown(page: Page) -> None:
    await page.tab_to(f"{FOCUS}.dataset.job === 'default/large'")
    await page.press("Enter")
    await page.until(f"{DETAIL}.includes('Placed')")
    assert (await page.ask("location.href")).endswith("/?job=default%2Flarge")  # of the log's end, which goes on
    await page.ask(f"{SESSIONS}.open = true")
    await page.tab_to(f"{FOCUS}.id === 'slider'", shift=True)
    await page.press("ArrowLeft")
    await page.until(f"{CAPTION}.startsWith('session 7, ')")
    address = await page.ask("location.href")
    assert address.endswith("/?session=7&job=default%2Flarge")
    await page.open("about:blank")
    await page.open(address)
    await page.until(f"{CAPTION}.startsWith('session 7, ') && {DETAIL}.includes('WAITING 10 min')")
    await page.tab_to(f"{FOCUS}.id === 'latest'")
    await page.press("Enter")
    await page.until(f"{CAPTION}.startsWith('session 8, ')")
    assert await page.ask("document.getElementById('live').checked")


async def test_nodes_are_told_by_arrow_keys(page: Page) -> None:
    await page.tab_to(f"{FOCUS}.id === 'nodes'")
    await page.press("ArrowRight")
    await page.press("End")
    assert (await page.ask("document.getElementById('node').innerText")).startswith("n4: cpu 21 of 24 (88 %)")


async def test_totals_and_the_states_of_jobs_are_told(page: Page) -> None:
    totals = await page.ask("document.getElementById('total').innerText")
    assert totals.startswith("15 of 56 cpu free\nlargest free block: ")
    assert "cpu 41 of 56 (73 %)" in totals
    assert "5 of 5 nodes ready" in totals
    assert [line.split()[0] for line in await page.ask(OTHERS)] == [
        "default/first",
        "default/large",
        "default/second",
    ]
    await page.ask("(() => { const list = document.getElementById('job-state'); list.value = 'ended';"
                   " list.dispatchEvent(new Event('input', {bubbles: true})); })()")  # fmt: skip
    assert [line.split()[0] for line in await page.ask(OTHERS)] == ["default/first"]


async def test_nodes_are_coloured_by_what_is_scarcest_and_lead_to_their_pods_and_jobs(page: Page) -> None:
    assert await page.ask("document.getElementById('node-resource').value") == ""
    uses = await page.ask("[...document.querySelectorAll('#nodes > div')].map(node => node.dataset.use)")
    await page.tab_to(f"{FOCUS}.id === 'nodes'")
    await page.press("ArrowRight")
    await page.press("End")
    await page.press("Enter")
    await page.until(f"{DETAIL}.includes('default/large-')")
    told = await page.ask(DETAIL)
    assert told.startswith("node n4: 3 pods")
    assert "cpu 7" in told
    assert uses[4] == "4"
    await page.tab_to(f"{FOCUS}.dataset.podsJob === 'default/large'")
    await page.press("Enter")
    await page.until(f"{DETAIL}.includes('Waited 11 min')")


async def test_a_waiting_jobs_panel_begins_with_the_answer_and_tells_when_it_starts(page: Page) -> None:
    await page.open(f"{await page.ask('location.origin')}/?session=7&job=default%2Flarge")
    answer = "document.getElementById('answer').innerText"
    await page.until(f"{answer} !== ''")
    assert (await page.ask(answer)).startswith("Why\nThe cluster is full: 34 of 40 cpu are free, and it needs 35")
    assert await page.ask("document.getElementById('eta-words').innerText") == ""
    await page.tab_to(f"{FOCUS}.id === 'eta'")
    await page.press("Enter")
    await page.until("document.getElementById('eta-words').innerText.startsWith('as of session 7: cannot be told: ')")


async def test_what_if_a_job_were_in_another_queue_is_asked_by_keyboard(page: Page) -> None:
    await page.open(f"{await page.ask('location.origin')}/?job=default%2Fthird")
    await page.until(f"{DETAIL}.includes('queue small')")
    await page.tab_to(f"{FOCUS}.id === 'whatif-queue'")
    await page.write("default")
    await page.press("Enter")
    lines = "document.getElementById('whatif-lines').innerText"
    told = await page.until(f"{lines}.includes('with the recorded configuration it') && {lines}")
    assert told.startswith("with queue default it would have waited ")
    await page.tab_to(f"{FOCUS}.id === 'whatif-queue'")
    await page.press("Tab")
    await page.write("urgnet")
    await page.press("Enter")
    await page.until("document.getElementById('whatif-status').innerText.includes('there is no PriorityClass urgnet')")
    page.complaints[:] = [one for one in page.complaints if "404" not in one]  # what the browser says of an answer


async def test_a_link_names_a_time(page: Page) -> None:
    for at in ("2026-01-01T00:10:30Z", "1767226230000"):
        await page.open(f"{await page.ask('location.origin')}/?at={at}")
        await page.until(f"{CAPTION}.startsWith('session 7, ')")


async def test_what_names_say_is_text_and_a_growing_log_is_followed(tmp_path: Path) -> None:
    hostile = "<img src=x onerror=document.title='owned'>"
    async with scheduler(tmp_path / "live.log") as made:
        await made.show(dsl.node("n0", cpu=8), dsl.queue("default"))
        await made.show(dsl.gang("small", 1, cpu=2, phase="Pending", queue=hostile))
        await made.cycle()
        async with View(tmp_path / "live.log") as view, browsing(tmp_path) as page:
            await page.open(view.url)
            await page.until(f"{JOBS}.length > 0")
            assert hostile in (await page.ask(JOBS))[0]
            assert await page.ask("document.querySelectorAll('img').length") == 0
            assert await page.ask("document.title") == "vcd"
            assert await page.ask("document.getElementById('live').checked")
            await made.cycle()
            await made.cycle()
            await page.until(f"{CAPTION}.startsWith('session 3, ')")
            await to_the_slider(page)
            await page.press("ArrowLeft")
            await page.until(f"{CAPTION}.startsWith('session 2, ')")
            assert not await page.ask("document.getElementById('live').checked")
            assert page.complaints == []


class OneReader:
    """The reviews of an API server that knows one token, of somebody who may do everything."""

    async def who(self, token: str) -> User | None:
        return User(username="reader") if token == "good" else None

    async def may(self, who: User, access: Access) -> bool:
        return who.username == "reader"


async def test_a_token_is_asked_for_and_used(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy.log")
    async with View(tmp_path / "busy.log", "0.0.0.0", reviews=OneReader()) as view, browsing(tmp_path) as page:
        await page.open(f"http://127.0.0.1:{view.port}/")
        for token, why in (("bad", "a bearer token is needed"), ("good", "does not know this token")):
            await page.until(f"document.getElementById('ask').open && document.body.innerText.includes({why!r})")
            assert await page.ask(f"{FOCUS}.id") == "token"
            await page.write(token)
            await page.press("Enter")
        await page.until(f"{JOBS}.length > 0")


# --- the five situations ----------------------------------------------------------------------------------------------

HEADINGS = "[...document.querySelectorAll('main h2')].filter(one => one.checkVisibility()).map(one => one.innerText)"
TILES = "[...document.querySelectorAll('#total strong')].map(one => one.innerText)"
CAUSES = "[...document.querySelectorAll('#causes button')].map(one => one.innerText.replace(/\\s+/g, ' ').trim())"
SENTENCES = "[...document.querySelectorAll('main p, main small, aside dd')].map(one => one.innerText.trim())"
WIDTH, HEIGHT = (f"document.documentElement.scroll{side}" for side in ("Width", "Height"))


class Expected(NamedTuple):
    """What a situation displays: the tiles at the top, the causes of waits, and how many rows of waiting jobs."""

    tiles: list[str]
    causes: list[str]
    rows: int


SCREENS = {
    "full": Expected(
        ["0 of 24 GPU free", "3 of 3 nodes ready", "4 jobs waiting", "2 jobs running", "in use"],
        ["cluster full 3 jobs", "unschedulable shape 1 job"],
        4,
    ),
    "half-idle": Expected(
        ["24 of 48 GPU free", "6 of 6 nodes ready", "0 jobs waiting", "1 job running", "in use"], [], 0
    ),
    "large": Expected(
        ["1,000 of 8,000 GPU free", "1,000 of 1,000 nodes ready", "300 jobs waiting", "1 job running", "in use"],
        ["fragmentation 150 jobs", "unschedulable shape 75 jobs", "cluster full 75 jobs"],
        15,
    ),
    "no-nodes": Expected(["no nodes", "1 job waiting", "0 jobs running"], ["cluster full 1 job"], 1),
    "no-sessions": Expected(
        ["24 of 24 GPU free", "3 of 3 nodes ready", "1 job waiting", "0 jobs running", "in use"],
        ["no cause yet 1 job"],
        1,
    ),
}


@pytest.fixture(scope="module")
def situation_logs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The logs of SCREENS, by name."""
    folder = tmp_path_factory.mktemp("situations")
    for name in SCREENS:
        asyncio.run(write_situation(name, folder / name))
    return folder


@pytest.mark.parametrize("name", SCREENS)
async def test_a_situation_fits_its_screen(situation_logs: Path, tmp_path: Path, name: str) -> None:
    expected = SCREENS[name]
    async with View(situation_logs / name) as view, browsing(tmp_path) as page:
        for width, most in ((1400, 2000), (400, 3000)):
            await page.resize(width, 900)
            await page.open(view.url)
            await page.until(f"{TILES}.length === {len(expected.tiles)} && {TILES}[0] === {expected.tiles[0]!r}")
            assert await page.ask(TILES) == expected.tiles
            assert await page.ask(HEADINGS) == [
                "Cluster", "Waiting jobs", "Queues", "Nodes", "Running and ended jobs", "Sessions",
            ]  # fmt: skip
            assert [one.partition(" longest")[0] for one in await page.ask(CAUSES)] == expected.causes
            assert await page.ask("document.querySelectorAll('#waiting tbody tr').length") == expected.rows
            assert await page.ask(f"{WIDTH} <= innerWidth")
            assert await page.ask(HEIGHT) <= most
            sentences = [text for text in await page.ask(SENTENCES) if text.count(" ") > 2]
            assert len(sentences) == len(set(sentences))
        assert page.complaints == []


async def test_a_cause_filters_the_list_and_a_link_keeps_the_filter(situation_logs: Path, tmp_path: Path) -> None:
    async with View(situation_logs / "full") as view, browsing(tmp_path) as page:
        await page.open(f"{view.url}?namespace=default&queue=research")
        await page.until(f"{CAUSES}.length === 2")
        await page.tab_to(f"{FOCUS}.dataset.cause === 'unschedulable-shape'")
        await page.press("Enter")
        waiting = "[...document.querySelectorAll('#waiting [data-job]')].map(one => one.dataset.job)"
        await page.until(f"{waiting}.length === 1")
        address = await page.ask("location.href")
        assert address.endswith("/?namespace=default&queue=research&cause=unschedulable-shape")
        await page.open("about:blank")
        await page.open(address)
        await page.until(f"{waiting}.length === 1")
        assert await page.ask(waiting) == ["default/diffusion"]
        await page.open(f"{view.url}?namespace=nobody")
        await page.until(f"{TILES}[0] === '0 of 24 GPU free'")
        assert await page.ask(waiting) == []


async def test_nodes_are_found_by_name(situation_logs: Path, tmp_path: Path) -> None:
    async with View(situation_logs / "large") as view, browsing(tmp_path) as page:
        await page.open(view.url)
        cells = "[...document.querySelectorAll('#nodes > div')].map(one => one.innerText)"
        await page.until(f"{cells}.length === 1000")
        await page.tab_to(f"{FOCUS}.id === 'node-text'")
        await page.write("gpu-07")
        await page.until(f"{cells}.length === 100")
        await page.write("13")
        await page.until(f"{cells}.join() === 'gpu-0713'")
