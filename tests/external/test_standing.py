"""What the page says, in a real Chromium, of a session that a replica's log has not: not yet, or not any more."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.cluster import until
from tests.e2e.test_standing import LEASE, Shown, name_of
from tests.external.browser import Page, browsing
from tests.timetravel.histories import write_busy_history
from vcd.timetravel.log_operations import export
from vcd.view.page_server import View

pytestmark = pytest.mark.external

CAPTION = "document.getElementById('caption').innerText"
STATUS = "document.getElementById('status').innerText"
STANDING = "document.getElementById('standing').innerText"
LACKS = "document.getElementById('standing').classList.contains('lacks')"


def only_not_found(page: Page) -> bool:
    """Whether the browser complains of nothing but answers that said what is not there."""
    return all("status of 404" in complaint for complaint in page.complaints)


async def test_a_follower_that_is_cut_off_names_who_leads_and_a_session_that_it_lacks(tmp_path: Path) -> None:
    async with Shown(tmp_path) as cluster:
        leader, follower = await cluster.agreed(1, 1)
        holder = name_of(leader)
        await follower.kill()
        (token := tmp_path / "no-token").write_text("")
        again = await cluster.start("b", f"--replicas-token-file={token}", log=follower.log)
        await until(lambda: again.lines("the leader's log is not followed"), what="it is cut off")
        async with browsing(tmp_path) as page:
            await page.open(f"{cluster.pages['b']}/?session=999")
            await page.until(f"{LACKS} && {STANDING}.includes('it does not have everything yet that {holder} logged')")
            assert (await page.ask(STANDING)).endswith(f"{holder} holds Lease {LEASE}")
            await page.until(f"{STATUS}.startsWith('session 999 is not in the log; it has sessions 1 to ')")
            assert (await page.ask(STATUS)).endswith(f"{holder} holds Lease {LEASE}")
            await page.until(f"{CAPTION}.startsWith('session ')")
            token.write_text("token-of-b")
            await page.until(f"!{LACKS} && {STANDING}.includes('it had all that {holder} logged')")
            number = "document.getElementById('number')"
            await page.ask(f"{number}.value = '1', {number}.dispatchEvent(new Event('change'))")
            await page.until(f"{STATUS} === '' && {CAPTION}.startsWith('session 1, ')")
            assert only_not_found(page)


async def test_a_session_that_retention_removed_is_told_and_the_first_one_shown(tmp_path: Path) -> None:
    await write_busy_history(tmp_path / "busy.log")
    export(tmp_path / "busy.log", tmp_path / "rest.log", 5)
    async with View(tmp_path / "rest.log") as view, browsing(tmp_path) as page:
        await page.open(f"{view.url}?session=2&job=default/large")
        await page.until(f"{STATUS}.startsWith('session 2 is not in the log; it has sessions 5 to 8, and older ones')")
        await page.until(f"{CAPTION}.startsWith('session 5, ')")
        assert await page.ask(STANDING) == ""
        assert only_not_found(page)
