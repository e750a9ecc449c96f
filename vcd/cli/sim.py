"""``vcd sim``: an embedded cluster with a scheduler and a workload.

This module has the options and the output's order; `simulation.py` runs the cluster, and `simview.py` formats what it
reports.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import click

from vcd.cli import simview
from vcd.cli.command_errors import InvalidConf, Unusable, report_errors
from vcd.cli.inputs import COUNT, FiniteRange, end_by, print_reading, read_manifests, strict_option
from vcd.cli.output import table_output
from vcd.cli.printing import print_lines, print_result
from vcd.cli.simulation import Scenario, Simulation
from vcd.cli.view import address
from vcd.daemon import structured_logging
from vcd.embedded.status_errors import StatusError
from vcd.embedded.workload_generator import Mix, WorkloadError, generate, parse_mix, parse_nodes, parse_queues
from vcd.scheduling.framework.policy import PolicyError
from vcd.timetravel.log_operations import LogError
from vcd.timetravel.manifest_reader import read, to_create
from vcd.view.page_server import View, ViewError

CONTROLLED = (("Deployment", "apps"), ("Job", "batch.volcano.sh"), ("ReplicaSet", "apps"))
"""The workloads whose controllers run in the embedded cluster."""
_SHAPE = "cpu=32,memory=256Gi"
_PROGRESS = 5.0
"""Real seconds between two lines of progress."""

_path = click.Path(path_type=Path)
_file = click.Path(exists=True, dir_okay=False, path_type=Path)


@click.command()
@click.option(
    "--nodes",
    help='A number, or shapes: "100*cpu=32,memory=256Gi,zone=z{i%3};4*cpu=64,nvidia.com/gpu=8". They are added to the '
    "nodes of --workload; by default 10 if it has none.",
)
@click.option("--queues", default="", help='Queues with their weights: "research:3,serving".')
@click.option("--workload", "workloads", multiple=True, help="A file or folder of manifests, or -; may be repeated.")
@click.option("--mix", help='A generated workload: "gangs=20,jobs=20,deployments=4,pods=40,every=2,run=30-600".')
@click.option(
    "--remove-after",
    type=FiniteRange(min=0),
    help="Delete pods without an owner, and their PodGroups, this many cluster seconds after their end; by default "
    "never.",
)
@click.option("--seed", type=COUNT, default=0, show_default=True, help="The seed of the mix and of decisions.")
@click.option("--speed", type=FiniteRange(min=0, min_open=True), help="Cluster seconds per real second.")
@click.option("--jump", is_flag=True, help="Let the cluster's time jump to the next event.")
@click.option(
    "--serve", callback=address, metavar="HOST:PORT", help="The address at which kubectl reaches the API server."
)
@click.option(
    "--view-address", callback=address, metavar="HOST:PORT", help="The address at which to serve the log as a page."
)
@click.option("--event-log", type=_path, help="A new file for the event log; by default a temporary one.")
@click.option(
    "--scheduler-conf", type=_file, help="The file that vc-scheduler reads; by default its compiled-in configuration."
)
@click.option(
    "--exit-when-idle", is_flag=True, help="End when the whole workload has arrived and no further event is due."
)
@click.option("--duration", type=FiniteRange(min=0, min_open=True), help="End after this many cluster seconds.")
@strict_option
@table_output
@report_errors
def sim(
    *,
    nodes: str | None,
    queues: str,
    workloads: tuple[str, ...],
    mix: str | None,
    remove_after: float | None,
    seed: int,
    speed: float | None,
    jump: bool,
    serve: tuple[str, int] | None,
    view_address: tuple[str, int] | None,
    event_log: Path | None,
    scheduler_conf: Path | None,
    exit_when_idle: bool,
    duration: float | None,
    strict: bool,
    output: str,
) -> None:
    """Run a cluster in this process, its API served over HTTP, and schedule it.

    A pod runs as long as its annotation vcd.sim/run-seconds states (forever without one). A manifest of --workload
    with the annotation vcd.sim/at-seconds is created at that time. Without --workload, --mix and --serve, a mix is
    generated.

    With --exit-when-idle time jumps, else it passes in real time, unless --jump or --speed is given. Ctrl-C ends the
    simulation.

    Exits with 0 when it ended as requested (also by Ctrl-C); with 1 if it could not continue, something in the
    manifests was refused, or, with --strict, is not understood; with 2 for a bad option, a file that cannot be used,
    or an address that is in use.
    """
    if jump and speed is not None:
        raise click.UsageError("--jump and --speed exclude each other")
    structured_logging.configure(verbosity=-1)
    try:
        reading = read(read_manifests(workloads), to_create=True)
        found = _nodes(nodes, reading.objects), parse_queues(queues)
        manifests = to_create(reading, CONTROLLED, found[0])
        print_lines((f"note: {note}" for note in reading.notes), err=True)
        print_reading(reading.refused(), reading.unknown, strict=strict)
        names = [queue["metadata"]["name"] for queue in found[1]] or ["default"]
        host, port = serve or ("127.0.0.1", 0)  # any free port, on this machine only
        has_workload = mix is not None or not (workloads or port)
        arrivals = generate(Mix() if mix is None else parse_mix(mix), names, seed) if has_workload else ()
        plan = Scenario(
            event_log=_new_log(event_log),
            nodes=found[0],
            queues=found[1],
            arrivals=arrivals,
            manifests=manifests,
            refused=reading.refused(),
            unknown=reading.unknown,
            conf=scheduler_conf,
            seed=seed,
            speed=None if jump or (exit_when_idle and speed is None) else speed or 1.0,
            remove_after=remove_after,
            host=host or "0.0.0.0",
            port=port,
        )
        view = None if view_address is None else View(plan.event_log, *view_address, flag="--view-address")
        result = asyncio.run(_simulate(plan, view, exit_when_idle, duration))
    except (WorkloadError, ViewError) as error:
        raise Unusable(str(error)) from None
    print_result(result, result.lines(), output)
    end_by(result.refused, result.unknown, strict=strict)


# --- parsing of options -----------------------------------------------------------------------------------------------


def _nodes(spec: str | None, manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the initial nodes that are no manifests; ten if there are no others."""
    found = []
    brought = [manifest["metadata"]["name"] for manifest in manifests if manifest["kind"] == "Node"]
    if spec is None:
        spec = "0" if brought else "10"
    spec = spec.strip()
    if not (spec.isascii() and spec.isdigit()):
        found += parse_nodes(spec)
    elif int(spec):
        found += parse_nodes(f"{spec}*{_SHAPE}")
    names = [node["metadata"]["name"] for node in found]
    doubled = next((name for name, count in Counter([*names, *brought]).items() if count > 1), None)
    if doubled is not None:
        raise Unusable(f"two nodes have the name {doubled}; name those of --nodes: name=more-{{i}}")
    return found


def _new_log(file: Path | None) -> Path:
    """Return the log's file; an existing one belongs to another cluster. Raises Unusable."""
    if file is None:
        return Path(tempfile.mkdtemp(prefix="vcd-sim-")) / "events.sqlite"
    if file.exists():
        raise Unusable(f"{file} exists already; a simulated cluster needs a new file")
    return file


# --- running the simulation -------------------------------------------------------------------------------------------


async def _simulate(plan: Scenario, view: View | None, idle: bool, duration: float | None) -> simview.SimulationSummary:
    """Run the simulation until it ends. Raises ClickException for errors that the user can fix."""
    timing = simview.Timing()
    simulation = Simulation(plan)
    stop = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop.set)
    async with contextlib.AsyncExitStack() as stack:
        await _start(simulation, stack)
        if view is not None:
            click.echo(f"page at {(await stack.enter_async_context(view)).url}", err=True)
        watching = asyncio.create_task(_print_progress(simulation))
        try:
            await simulation.wait(idle=idle, seconds=duration, stop=stop)
        except (LogError, OSError) as error:
            raise click.ClickException(str(error)) from None
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        ended = simview.summary(simulation, timing)
    return ended.closed(timing)


async def _start(simulation: Simulation, stack: contextlib.AsyncExitStack) -> None:
    plan = simulation.plan
    try:
        await stack.enter_async_context(simulation)
    except PolicyError as error:
        raise InvalidConf(str(plan.conf), error) from None
    except StatusError as error:
        raise Unusable(error.message) from None
    except OSError as error:
        where = f"--serve {plan.host}:{plan.port}: " if simulation.service is None and plan.port else ""
        raise Unusable(f"{where}{os.strerror(error.errno) if error.errno else error}") from None


async def _print_progress(simulation: Simulation) -> None:
    """Print lines of progress until cancelled."""
    click.echo(f"API server at {simulation.server.url}, event log {simulation.plan.event_log} (for vcd top)", err=True)
    while True:
        await asyncio.sleep(_PROGRESS)
        click.echo(simview.progress(simulation), err=True)
