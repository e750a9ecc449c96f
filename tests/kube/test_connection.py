"""Where the API server is found, and how credentials stay fresh."""

from __future__ import annotations

import asyncio
import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.kube.recorded import answer
from tests.kube.scripted import Answer, FakeClock, Seen, scripted
from vcd.kube import connection
from vcd.kube.client import KubeClient
from vcd.kube.connection import ConfigurationError, connect
from vcd.kube.errors import ApiError


def kubeconfig(path: Path, user: dict[str, Any] | None = None, server: str = "http://one:1", **cluster: Any) -> str:
    """Write a kubeconfig and return its name."""
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
        "clusters": [{"name": "k", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


def plugin(path: Path, expires: str | None) -> dict[str, Any]:
    """An exec plugin whose n-th run gives token ``t<n>``."""
    status = {"token": "TOKEN"} | ({"expirationTimestamp": expires} if expires else {})
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    runs = path.with_suffix(".runs")
    text = json.dumps(credential).replace("TOKEN", "t'$(wc -l < " + str(runs) + " | tr -d ' ')'")
    path.write_text(f"#!/bin/sh\necho >> {runs}\necho '{text}'\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(path), "args": []}}


def write(path: Path, text: str) -> None:
    """Replace a file's text, as the kubelet does."""
    path.write_text(text)


@pytest.fixture(name="pod")
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A service account as it is mounted into a pod; the token's file."""
    token, certificate = tmp_path / "token", tmp_path / "ca.crt"
    token.write_text("first\n")
    certificate.write_text(_CERTIFICATE)
    monkeypatch.setattr(connection, "SERVICE_ACCOUNT", tmp_path)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "fd00::1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "6443")
    return token


async def test_master_alone_needs_no_credentials() -> None:
    found = await connect(master="http://127.0.0.1:8001/")
    assert (found.base_url, dict(found.credentials.headers)) == ("http://127.0.0.1:8001", {})


async def test_a_master_without_a_scheme_is_http() -> None:
    assert (await connect(master="127.0.0.1:8001")).base_url == "http://127.0.0.1:8001"


async def test_a_kubeconfig_gives_server_and_token(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path / "k", {"token": "abc"}))
    assert (found.base_url, found.credentials.headers["Authorization"]) == ("http://one:1", "Bearer abc")


async def test_master_overrides_the_kubeconfigs_server(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path / "k", {"token": "abc"}), "http://two:2")
    assert (found.base_url, found.credentials.headers["Authorization"]) == ("http://two:2", "Bearer abc")


async def test_the_environments_kubeconfig_is_found(tmp_path: Path) -> None:
    environ = {"KUBECONFIG": kubeconfig(tmp_path / "k")}
    assert (await connect(environ=environ)).base_url == "http://one:1"


def two_contexts(path: Path, current: str = "one") -> str:
    """A kubeconfig with the contexts one and two, each with a server and a token of its name."""
    names = ("one", "two")
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "current-context": current,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name}} for name in names],
        "clusters": [{"name": name, "cluster": {"server": f"http://{name}:1"}} for name in names],
        "users": [{"name": name, "user": {"token": name}} for name in names],
    }
    path.write_text(yaml.safe_dump(config))
    return str(path)


@pytest.mark.parametrize("current", ["one", ""])
async def test_a_context_that_is_named_goes_before_the_current_one(tmp_path: Path, current: str) -> None:
    found = await connect(two_contexts(tmp_path / "k", current), context="two")
    assert (found.base_url, found.credentials.headers["Authorization"]) == ("http://two:1", "Bearer two")


async def test_a_context_is_a_kubeconfigs_also_inside_a_pod(pod: Path, tmp_path: Path) -> None:
    environ = {"KUBERNETES_SERVICE_HOST": "fd00::1", "KUBECONFIG": two_contexts(tmp_path / "k")}
    assert (await connect(context="two", environ=environ)).base_url == "http://two:1"


async def test_a_context_that_does_not_exist_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="three"):
        await connect(two_contexts(tmp_path / "k"), context="three")


def test_contexts_are_read_from_all_files(tmp_path: Path) -> None:
    both = f"{two_contexts(tmp_path / 'a')}:{kubeconfig(tmp_path / 'b')}"
    assert [one.name for one in connection.contexts_of(both)[0]] == ["one", "two", "c"]
    assert connection.contexts_of(str(tmp_path / "none")) == ([], "")


async def test_proxy_and_tls_name_are_taken_over(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", server="https://one:1", **{"tls-server-name": "api", "proxy-url": "http://p:3"})
    found = await connect(path)
    assert (found.server_hostname, found.proxy) == ("api", "http://p:3")
    assert found.ssl_context is not None


async def test_verification_can_be_turned_off(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", server="https://one:1", **{"insecure-skip-tls-verify": True})
    found = await connect(path)
    assert found.ssl_context is not None
    assert not found.ssl_context.check_hostname


async def test_a_service_account_is_found_inside_a_pod(pod: Path) -> None:
    found = await connect()
    assert found.base_url == "https://[fd00::1]:6443"
    assert found.credentials.headers["Authorization"] == "Bearer first"


async def test_a_rotated_service_account_token_is_read_again(pod: Path) -> None:
    clock = FakeClock()
    found = await connect(clock=clock)
    write(pod, "second\n")
    assert not found.credentials.due
    clock.now += 61
    assert found.credentials.due
    assert await found.credentials.refresh()
    assert found.credentials.headers["Authorization"] == "Bearer second"


async def test_credentials_that_cannot_be_read_again_stay(pod: Path) -> None:
    found = await connect()
    write(pod, "")
    assert not await found.credentials.refresh()
    assert found.credentials.headers["Authorization"] == "Bearer first"


async def test_a_token_file_is_read_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")
    found = await connect(kubeconfig(tmp_path / "k", {"tokenFile": str(token)}))
    token.write_text("two")
    assert await found.credentials.refresh()
    assert found.credentials.headers["Authorization"] == "Bearer two"


async def test_an_exec_plugins_token_is_kept_until_it_expires(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path / "k", plugin(tmp_path / "p", "2999-01-01T00:00:00Z")))
    assert not await found.credentials.refresh()
    assert found.credentials.headers["Authorization"] == "Bearer t1"


async def test_an_exec_plugin_runs_again_when_its_token_expires(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path / "k", plugin(tmp_path / "p", "2001-01-01T00:00:00Z")))
    assert await found.credentials.refresh()
    assert found.credentials.headers["Authorization"] == "Bearer t2"


async def test_a_refused_token_is_replaced_and_the_request_repeated(tmp_path: Path) -> None:
    async with scripted() as server:
        server.on("GET", "/readyz", answer("no token"), Answer(200, {}))
        path = kubeconfig(tmp_path / "k", plugin(tmp_path / "p", None), server.url)
        async with KubeClient(await connect(path)) as client:
            await client.request("GET", "/readyz")
        assert [seen.headers["Authorization"] for seen in server.seen] == ["Bearer t1", "Bearer t2"]


async def test_a_token_that_is_still_refused_is_an_error(tmp_path: Path) -> None:
    async with scripted() as server:
        server.on("GET", "/readyz", answer("no token"))
        path = kubeconfig(tmp_path / "k", {"token": "abc"}, server.url)
        async with KubeClient(await connect(path)) as client:
            with pytest.raises(ApiError, match="401 Unauthorized"):
                await client.request("GET", "/readyz")
        assert len(server.seen) == 1


async def test_nothing_to_connect_to_is_a_clear_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match="give --kubeconfig or --master"):
        await connect(environ={})


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("clusters: []", "current-context"),
        ("a: [", "kubeconfig"),
        ("", "kubeconfig"),
    ],
)
async def test_a_broken_kubeconfig_is_a_clear_error(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "k"
    path.write_text(text)
    with pytest.raises(ConfigurationError, match=message):
        await connect(str(path))


async def test_a_missing_kubeconfig_is_a_clear_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="does not exist"):
        await connect(str(tmp_path / "absent"))


@pytest.mark.parametrize(("token", "port", "message"), [("", "1", "empty token"), ("t", "", "no KUBERNETES")])
async def test_a_broken_service_account_is_a_clear_error(
    pod: Path, monkeypatch: pytest.MonkeyPatch, token: str, port: str, message: str
) -> None:
    write(pod, token)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    with pytest.raises(ConfigurationError, match=message):
        await connect()


async def test_a_service_account_without_a_token_is_a_clear_error(
    pod: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "SERVICE_ACCOUNT", tmp_path / "absent")
    with pytest.raises(ConfigurationError, match=r"service account: .*No such file"):
        await connect()


def test_in_a_pod_the_generated_client_is_not_imported(pod: Path) -> None:
    """It would hold tens of megabytes that nobody uses for as long as the scheduler runs."""
    program = (
        "import asyncio, pathlib, sys; from vcd.kube import connection;"
        f"connection.SERVICE_ACCOUNT = pathlib.Path({str(pod.parent)!r});"
        "print(asyncio.run(connection.connect()).credentials.headers['Authorization']);"
        "print('kubernetes_asyncio' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split("\n")[:2] == ["Bearer first", "False"]


_CERTIFICATE = """\
-----BEGIN CERTIFICATE-----
MIIBdTCCARugAwIBAgIUYnfrVKHxijJjvVgxj2Q4o3ybRdEwCgYIKoZIzj0EAwIw
DzENMAsGA1UEAwwEdGVzdDAgFw0yNjExMjExMDI3MzJaGA8yMTI2MTAyODEwMjcz
MlowDzENMAsGA1UEAwwEdGVzdDBZMBMGByqGSM49AgEGCCqGSM49AwEHA0IABChh
61So8rdRh8f+8xH0nlqi2LmNGrXP39Anjup/zdx/vup6Kadhuw7DQLtbU8eKf1m5
0A888vfVm00sH1U0/ZqjUzBRMB0GA1UdDgQWBBRKMgM1srQmZEXzq093Q2XOTqHM
0TAfBgNVHSMEGDAWgBRKMgM1srQmZEXzq093Q2XOTqHM0TAPBgNVHRMBAf8EBTAD
AQH/MAoGCCqGSM49BAMCA0gAMEUCIQD0zvD2cvqQsL01b7rwDZV+lKd8lKgvayoe
+i+5fi6S0gIgS2VvPD78VWnf1YH+vEZHFUyry+BFAGl/uNpFbiRL38E=
-----END CERTIFICATE-----
"""


async def test_all_that_were_refused_with_an_old_token_are_asked_again(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("one")

    def answered(seen: Seen) -> Answer:
        return Answer(200, {}) if seen.headers["Authorization"] == "Bearer two" else answer("no token")

    async with scripted() as server:
        server.on("POST", "/binding", answered)
        async with KubeClient(
            await connect(kubeconfig(tmp_path / "k", {"tokenFile": str(token)}, server.url))
        ) as client:
            token.write_text("two")  # as the kubelet does
            binds = [client.request("POST", f"/pods/{i}/binding", b"{}") for i in range(8)]
            found = await asyncio.gather(*binds, return_exceptions=True)
        assert [one for one in found if isinstance(one, Exception)] == []
