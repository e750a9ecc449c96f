"""The page beside a scheduler: there for this machine, elsewhere only for who has a token, and never in the way."""

from __future__ import annotations

import asyncio
import socket
from pathlib import Path
from typing import Any

import aiohttp

from tests.e2e.cluster import Cluster, Daemon, until
from tests.serving.pairs import trusting, write_pair


async def page_of(daemon: Daemon) -> str:
    """Where a replica serves its page, once it says so."""
    await until(lambda: daemon.url("/"), what="the page is there")
    return daemon.url("/")


async def asked(url: str, **headers: str) -> tuple[int, Any]:
    async with aiohttp.ClientSession() as session, session.get(url, headers=headers) as answer:
        return answer.status, await answer.json()


async def test_a_scheduler_shows_what_it_decides(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(2)
        daemon = await cluster.started("a", "--view-address=127.0.0.1:0")
        page = await page_of(daemon)
        await cluster.until_bound(cluster.submit("gang", 4))
        status, overview = await asked(f"{page}/api/overview")
        assert status == 200
        assert [job["key"] for job in overview["jobs"]] == ["default/gang"]


async def test_elsewhere_a_token_is_needed_of_a_user_who_may_read_the_page_or_list_the_jobs_of_a_namespace(
    tmp_path: Path,
) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started("a", "--view-address=0.0.0.0:0")
        page = await page_of(daemon)
        await cluster.until_bound(cluster.submit("gang", 1))
        cluster.may("create", "authentication.k8s.io", "tokenreviews")
        cluster.may("create", "authorization.k8s.io", "subjectaccessreviews")
        assert cluster.server.tokens is not None
        cluster.server.tokens |= {f"token-of-{name}": name for name in ("reader", "job", "tenant")}
        listing = {"verb": "list", "group": "scheduling.volcano.sh", "resource": "podgroups", "namespace": "default"}
        cluster.server.permit = lambda spec: (
            (spec["user"] == "tenant" and spec.get("resourceAttributes") == listing)
            or (
                spec["user"] == "reader"
                and spec["groups"] == ["system:authenticated"]
                and spec.get("nonResourceAttributes") == {"path": "/vcd/page", "verb": "get"}
            )
        )
        answers = await asyncio.gather(
            asked(f"{page}/api/head"),
            asked(f"{page}/api/head", Authorization="Bearer guessed"),
            asked(f"{page}/api/head", Authorization="Bearer token-of-job"),
            asked(f"{page}/api/head", Authorization="Bearer token-of-reader"),
        )
        assert [status for status, _ in answers] == [401, 401, 200, 200]
        status, refused = await asked(f"{page}/api/overview?session=1", Authorization="Bearer token-of-job")
        assert (status, refused["error"].partition(":")[0]) == (403, "job may see nothing of session 1")
        status, overview = await asked(f"{page}/api/overview", Authorization="Bearer token-of-tenant")
        assert (status, [job["key"] for job in overview["jobs"]]) == (200, ["default/gang"])
        assert (overview["nodes"], overview["queues"]) == ([], [])
        await guesses_are_put_off(cluster, daemon, page)


async def guesses_are_put_off(cluster: Cluster, daemon: Daemon, page: str) -> None:
    """Guessed tokens cost few reviews, and a good one is answered nevertheless."""
    answers = await asyncio.gather(
        *(asked(f"{page}/api/head", Authorization=f"Bearer guess-{number}") for number in range(100))
    )
    reviews = [made for made in cluster.calls(daemon, "create") if made.call.resource.startswith("tokenreviews")]
    assert {status for status, _ in answers} == {401, 429}
    assert len(reviews) < 100
    assert (await asked(f"{page}/api/head", Authorization="Bearer token-of-reader"))[0] == 200


async def test_a_taken_address_costs_the_page_and_nothing_else(tmp_path: Path) -> None:
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            daemon = await cluster.started("a", f"--view-address=127.0.0.1:{taken.getsockname()[1]}")
            await cluster.until_bound(cluster.submit("gang", 1))
        assert "give another port" in daemon.lines("the page is not served")[0]["reason"]


async def test_flags_protect_the_page_and_the_metrics(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, "one")
    async with Cluster(tmp_path) as cluster:
        cluster.add_nodes(1)
        daemon = await cluster.started(
            "a", "--view-address=0.0.0.0:0", "--page-audience=vcd", "--page-host=vcd.example.com",
            f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", "--metrics-secure",
            "--metrics-require-token",
        )  # fmt: skip
        page = (await page_of(daemon)).replace("http:", "https:")
        cluster.may("create", "authentication.k8s.io", "tokenreviews")
        cluster.may("create", "authorization.k8s.io", "subjectaccessreviews")
        assert cluster.server.tokens is not None
        cluster.server.tokens |= {"for-vcd": "ann", "for-all": "ann"}
        cluster.server.audiences = {"for-vcd": ("vcd",)}
        named = {"Host": "vcd.example.com"}
        metrics = daemon.metrics_url.replace("http:", "https:") + "/metrics"
        told = [
            (await told_by_tls(f"{page}/api/head", **named, Authorization="Bearer for-vcd")),
            (await told_by_tls(f"{page}/api/head", **named, Authorization="Bearer for-all")),
            (await told_by_tls(f"{page}/api/head", Authorization="Bearer for-vcd")),
            (await told_by_tls(metrics, Authorization="Bearer for-all")),
            (await told_by_tls(metrics, Authorization="Bearer for-vcd")),
            (await told_by_tls(metrics)),
        ]
        assert [status for status, _ in told] == [200, 401, 403, 200, 401, 401]
        certificate.write_text("nothing")
        await until(lambda: daemon.lines("certificate refused; the one in force stays"), what="it is refused")
        status, text = await told_by_tls(metrics, Authorization="Bearer for-all")
        assert (status, "\nvcd_certificate_reload_errors_total 1.0\n" in text) == (200, True)


async def told_by_tls(url: str, **headers: str) -> tuple[int, str]:
    """Status and text of an answer; the certificate is looked at, not believed."""
    async with (
        aiohttp.ClientSession(connector=aiohttp.TCPConnector(ssl=trusting())) as session,
        session.get(url, headers=headers) as answer,
    ):
        return answer.status, await answer.text()


async def test_a_bad_certificate_ends_the_start_with_one_error(tmp_path: Path) -> None:
    certificate, key = write_pair(tmp_path, "one", key="two")
    async with Cluster(tmp_path) as cluster:
        daemon = await cluster.start("a", f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}")
        await until(lambda: not daemon.running, what="it ends")
        assert daemon.process.returncode == 2
        assert [line["reason"] for line in daemon.lines("stopped")] == [
            f"--tls-cert-file={certificate} --tls-private-key-file={key}: the key is not the certificate's; give"
            " both of one pair"
        ]
