"""``vcd run``: what reaches the service, and how it ends."""

from __future__ import annotations

import asyncio
import logging
import sys
import types
from collections.abc import Callable, Iterator
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

import pytest
import structlog
from click.testing import CliRunner, Result

from vcd.cli.run import run
from vcd.daemon.options import FLAGS, Options

# As Volcano's chart writes them, the shell's words that no shell takes included.
CHART = [
    "--logtostderr",
    "--scheduler-conf=/volcano.scheduler/volcano-scheduler.conf",
    "--enable-healthz=true",
    "--enable-metrics=true",
    "--leader-elect=false",
    "--kube-api-qps=2000",
    "--kube-api-burst=2000",
    "--schedule-period=1s",
    "--node-worker-threads=20",
    "-v=3",
    "2>&1",
]


class Service:
    """Stands for ``vcd.daemon.process``, and for the replica that it runs."""

    def __init__(self) -> None:
        self.options: list[Options] = []
        self.code = 0
        self.loop: asyncio.AbstractEventLoop | None = None
        self.security = types.SimpleNamespace(page=None, certificate=None)

    async def run(self, options: Options, beside: Callable[[Any], AbstractAsyncContextManager[object]]) -> int:
        async with beside(self):
            self.options.append(options)
        self.loop = asyncio.get_running_loop()
        return self.code


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    fake = Service()
    module = types.ModuleType("vcd.daemon.process")
    vars(module)["run"] = fake.run
    monkeypatch.setitem(sys.modules, "vcd.daemon.process", module)
    root = logging.getLogger()
    handlers, level, before = list(root.handlers), root.level, structlog.get_config()
    yield fake
    root.handlers = handlers
    root.setLevel(level)
    structlog.configure(**before)


def ran(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(run, list(arguments), env=environ)


def test_without_flags_it_runs_with_the_defaults(service: Service) -> None:
    assert ran().exit_code == 0
    assert service.options == [Options()]


def test_the_charts_arguments_run_it(service: Service) -> None:
    result = ran(*CHART)
    assert result.exit_code == 0, result.output
    (options,) = service.options
    assert options.scheduler_conf == Path("/volcano.scheduler/volcano-scheduler.conf")
    assert (options.leader_elect, options.verbosity) == (False, 3)


def test_flags_without_effect_are_told_once(service: Service) -> None:
    result = ran(*CHART)
    told = [line for line in result.stderr.splitlines() if "without effect" in line]
    assert len(told) == 1
    assert "node-worker-threads" in told[0]
    assert "logtostderr" in told[0]


def test_a_value_may_be_a_word_of_its_own(service: Service) -> None:
    ran("--scheduler-name", "a", "--scheduler-name", "b", "-v", "5")
    assert (service.options[0].scheduler_names, service.options[0].verbosity) == (("a", "b"), 5)


def test_variables_stand_for_flags(service: Service) -> None:
    ran(VCD_DEFAULT_QUEUE="batch", VCD_SCHEDULER_NAME="a,b")
    assert (service.options[0].default_queue, service.options[0].scheduler_names) == ("batch", ("a", "b"))


@pytest.mark.parametrize("code", [0, 1, 2])
def test_the_services_code_is_the_programs(service: Service, code: int) -> None:
    service.code = code
    assert ran().exit_code == code


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("--schedule-period=never", "--schedule-period: 'never' is not a duration"),
        ("--no-such-flag=1", "No such option"),
        ("--leader-elect-lease-duration=12s", "make it more than 14s"),
    ],
)
def test_a_bad_flag_is_a_line_and_exit_code_2(service: Service, argument: str, message: str) -> None:
    result = ran(argument)
    assert (result.exit_code, service.options) == (2, [])
    assert message in result.stderr
    assert "Traceback" not in result.output


def test_a_bad_variable_is_named(service: Service) -> None:
    result = ran(VCD_SEED="x")
    assert result.exit_code == 2
    assert "VCD_SEED: 'x' is not an integer" in result.stderr


def test_the_help_has_every_flag_and_its_variable() -> None:
    words = "".join(ran("--help").output.split())
    missing = [flag.name for flag in FLAGS if flag.written not in words]
    unnamed = [flag.variable for flag in FLAGS if not flag.idle and flag.variable not in words]
    assert (missing, unnamed) == ([], [])


def test_the_version_is_shown() -> None:
    assert ran("--version").output.startswith("vcd ")


def test_uvloop_is_used_where_it_is_installed(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    class Loop(asyncio.SelectorEventLoop):
        """Stands for uvloop's."""

    uvloop = types.ModuleType("uvloop")
    uvloop.__spec__ = types.SimpleNamespace()  # type: ignore[assignment]
    vars(uvloop)["new_event_loop"] = Loop
    monkeypatch.setitem(sys.modules, "uvloop", uvloop)
    ran()
    assert isinstance(service.loop, Loop)
