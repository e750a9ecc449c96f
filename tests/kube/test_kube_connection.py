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
from tests.waiting import WAIT_LIMIT
from vcd.kube import kube_connection
from vcd.kube.api_errors import ApiError
from vcd.kube.client import KubeClient
from vcd.kube.kube_connection import ConfigurationError, connect


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
    monkeypatch.setattr(kube_connection, "SERVICE_ACCOUNT", tmp_path)
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
    assert [one.name for one in kube_connection.list_contexts(both)[0]] == ["one", "two", "c"]
    assert kube_connection.list_contexts(str(tmp_path / "none")) == ([], "")


async def test_proxy_and_tls_name_are_taken_over(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", server="https://one:1", **{"tls-server-name": "api", "proxy-url": "http://p:3"})
    found = await connect(path)
    assert (found.server_hostname, found.proxy) == ("api", "http://p:3")
    assert found.credentials.ssl_context is not None


async def test_verification_can_be_turned_off(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "k", server="https://one:1", **{"insecure-skip-tls-verify": True})
    found = await connect(path)
    assert found.credentials.ssl_context is not None
    assert not found.credentials.ssl_context.check_hostname


async def test_a_service_account_is_found_inside_a_pod(pod: Path) -> None:
    found = await connect()
    assert found.base_url == "https://[fd00::1]:6443"
    assert found.credentials.headers["Authorization"] == "Bearer first"


async def test_a_rotated_service_account_token_is_read_again(pod: Path) -> None:
    clock = FakeClock()
    found = await connect(clock=clock)
    write(pod, "second\n")
    assert not found.credentials.is_due
    clock.now += 61
    assert found.credentials.is_due
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
    monkeypatch.setattr(kube_connection, "SERVICE_ACCOUNT", tmp_path / "absent")
    with pytest.raises(ConfigurationError, match=r"service account: .*No such file"):
        await connect()


def test_in_a_pod_the_generated_client_is_not_imported(pod: Path) -> None:
    """It would hold tens of megabytes that nobody uses for as long as the scheduler runs."""
    program = (
        "import asyncio, pathlib, sys; from vcd.kube import kube_connection;"
        f"kube_connection.SERVICE_ACCOUNT = pathlib.Path({str(pod.parent)!r});"
        "print(asyncio.run(kube_connection.connect()).credentials.headers['Authorization']);"
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


# --- several files, and files that change -----------------------------------------------------------------------------


def test_of_several_files_the_first_that_names_a_current_context_says_it(tmp_path: Path) -> None:
    """As kubectl reads $KUBECONFIG: another cluster would be asked, or scheduled."""
    both = f"{two_contexts(tmp_path / 'a', 'two')}:{kubeconfig(tmp_path / 'b')}"
    assert kube_connection.list_contexts(both)[1] == "two"


@pytest.mark.parametrize(("current", "server"), [("two", "http://two:1"), ("", "http://one:1")])
async def test_the_server_is_that_of_the_first_current_context(tmp_path: Path, current: str, server: str) -> None:
    found = await connect(f"{two_contexts(tmp_path / 'a', current)}:{kubeconfig(tmp_path / 'b')}")
    assert found.base_url == server


async def test_another_current_context_gives_no_credentials_to_this_server(tmp_path: Path) -> None:
    found = await connect(two_contexts(tmp_path / "k", "one"))
    two_contexts(tmp_path / "k", "two")  # kubectl config use-context two
    await found.credentials.refresh(refused=True)
    assert (found.base_url, found.credentials.headers["Authorization"]) == ("http://one:1", "Bearer one")


async def test_a_context_of_another_server_by_now_gives_it_none_of_its_credentials(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path / "k", {"token": "first"}, "http://one:1"))
    kubeconfig(tmp_path / "k", {"token": "second"}, "http://two:2")  # a cluster that was made anew
    await found.credentials.refresh(refused=True)
    assert found.credentials.headers["Authorization"] == "Bearer first"


async def test_a_server_without_a_scheme_is_asked_by_tls_where_its_authority_is_named(
    pod: Path, tmp_path: Path
) -> None:
    cluster = {"certificate-authority": str(tmp_path / "ca.crt")}
    found = await connect(kubeconfig(tmp_path / "k", {"token": "abc"}, "one:6443", **cluster))
    assert found.base_url == "https://one:6443"
    assert found.credentials.authority == (tmp_path / "ca.crt").read_bytes()


async def test_a_master_without_a_scheme_is_asked_by_tls_where_the_authority_is_named(
    pod: Path, tmp_path: Path
) -> None:
    cluster = {"certificate-authority": str(tmp_path / "ca.crt")}
    path = kubeconfig(tmp_path / "k", {"token": "abc"}, "https://one:6443", **cluster)
    assert (await connect(path, "two:6443")).base_url == "https://two:6443"


@pytest.mark.parametrize("field", [{"as": "jane"}, {"as-groups": ["viewers"]}])
async def test_a_user_that_acts_as_another_is_refused_and_does_not_act_as_itself(
    tmp_path: Path, field: dict[str, Any]
) -> None:
    with pytest.raises(ConfigurationError, match="act as another"):
        await connect(kubeconfig(tmp_path / "k", {"token": "admin", **field}))


async def test_a_proxy_by_which_no_watch_can_go_is_refused(tmp_path: Path) -> None:
    """Requests could, and so what only lists may have it."""
    found = await connect(kubeconfig(tmp_path / "k", **{"proxy-url": "socks5://127.0.0.1:1080"}))
    with pytest.raises(ConfigurationError, match=r"socks5://127\.0\.0\.1:1080"):
        found.check_streams()


@pytest.mark.parametrize(
    ("address", "message"),
    [
        ("ftp://api", "its scheme is ftp, not http or https; write it like https://HOST:PORT"),
        ("http://", "nothing is no host"),
        ("/api", "nothing is no host"),
        ("://api", "its scheme is missing"),
        ("https://a b", "it has a blank"),
        ("https://a$b", "a\\$b is no host"),
        ("https://api:99999", "it is no URL"),
        ("api:port", "it is no URL"),
        ("https://api:0", "0 is no port"),
        ("https://api:", "it has no port"),
        ("https://[::1", "it is no URL"),
        ("https://api/?x=1", "it has a query or a fragment"),
    ],
)
async def test_a_malformed_address_is_a_clear_error(tmp_path: Path, address: str, message: str) -> None:
    with pytest.raises(ConfigurationError, match=f"^--master '.*': {message}"):
        await connect(master=address)
    with pytest.raises(ConfigurationError, match=r"^kubeconfig .*; write it like https://HOST:PORT"):
        await connect(kubeconfig(tmp_path / "k", server=address))


@pytest.mark.parametrize(
    "address", ["https://api", "10.0.0.1:6443", "https://[::1]:6443/k8s/clusters/c-1/", "http://a_b"]
)
async def test_addresses_that_clusters_have_are_taken(address: str) -> None:
    assert (await connect(master=address)).base_url.endswith(address.rstrip("/"))


async def test_a_malformed_proxy_is_a_clear_error(tmp_path: Path) -> None:
    found = await connect(kubeconfig(tmp_path / "k", **{"proxy-url": "http://proxy:99999"}))
    with pytest.raises(ConfigurationError, match="proxy-url 'http://proxy:99999': it is no URL"):
        found.check_streams()


# --- plugins that fail ------------------------------------------------------------------------------------------------


def rewritten(path: Path, command: str) -> None:
    """Another program in the place of a plugin."""
    path.write_text(f"#!/bin/sh\n{command}\n")


def hang(path: Path) -> Path:
    """Have a plugin run until a file is gone; that file."""
    gate = path.with_suffix(".gate")
    gate.touch()
    rewritten(path, f"echo >> {path}.hung\nwhile [ -e {gate} ]; do sleep 0.02; done")
    return gate


def credential(status: dict[str, Any]) -> str:
    return json.dumps({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status})


@pytest.mark.parametrize("status", [{}, {"token": None}, {"token": ""}, {"clientCertificateData": "x"}])
async def test_a_plugin_that_gives_nothing_takes_no_token_away(tmp_path: Path, status: dict[str, Any]) -> None:
    found = await connect(kubeconfig(tmp_path / "k", plugin(tmp_path / "p", None)))
    rewritten(tmp_path / "p", f"echo '{credential(status)}'")
    assert not await found.credentials.refresh(refused=True)
    assert not await found.credentials.refresh()
    assert found.credentials.headers["Authorization"] == "Bearer t1"


async def test_a_plugin_that_gives_nothing_is_no_way_to_a_server(tmp_path: Path) -> None:
    user = plugin(tmp_path / "p", None)
    rewritten(tmp_path / "p", f"echo '{credential({})}'")
    with pytest.raises(ConfigurationError, match="neither a token nor a certificate"):
        await connect(kubeconfig(tmp_path / "k", user))


async def test_a_plugin_that_hangs_holds_up_no_request_and_runs_once(tmp_path: Path) -> None:
    clock = FakeClock()
    async with scripted() as server:
        server.on("GET", "/lease", Answer(200, {}))
        path = kubeconfig(tmp_path / "k", plugin(tmp_path / "p", "2001-01-01T00:00:00Z"), server.url)
        found = await connect(path, clock=clock)
        async with KubeClient(found, request_timeout=1.0) as client:
            gate = hang(tmp_path / "p")
            for _ in range(3):
                clock.now += 61
                async with asyncio.timeout(WAIT_LIMIT):
                    await client.request("GET", "/lease")
            gate.unlink()
            await found.credentials.refresh()  # the plugin ends
        assert (tmp_path / "p.hung").read_text() == "\n"
        assert {seen.headers["Authorization"] for seen in server.seen} == {"Bearer t1"}


async def test_a_burst_that_is_refused_runs_a_plugin_once(tmp_path: Path) -> None:
    def answered(seen: Seen) -> Answer:
        return answer("no token") if seen.headers["Authorization"] == "Bearer t1" else Answer(200, {})

    async with scripted() as server:
        server.on("POST", "/binding", answered)
        path = kubeconfig(tmp_path / "k", plugin(tmp_path / "p", None), server.url)
        async with KubeClient(await connect(path)) as client:
            await asyncio.gather(*(client.request("POST", f"/pods/{i}/binding", b"{}") for i in range(16)))
    assert (tmp_path / "p.runs").read_text().count("\n") == 2
