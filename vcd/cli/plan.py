"""``vcd plan``: decide one cycle over manifests, or over the objects of a running cluster."""

from __future__ import annotations

import asyncio
import datetime
import importlib
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click
import msgspec

from vcd.api import plan as plan_cycle
from vcd.cli.command_errors import InvalidConf, Unusable, report_errors
from vcd.cli.conffile import read_configuration
from vcd.cli.fromcluster import CLUSTER_OPTIONS, implied
from vcd.cli.inputs import end_by, print_reading, read_manifests
from vcd.cli.output import WIDTH, Listing, output_option, print_listing
from vcd.cli.printing import print_json, print_lines
from vcd.daemon.options import OptionError, Options, parse_options
from vcd.diagnosis.diagnosedwaits import DiagnosedWait
from vcd.model.projection_codec import BadObject
from vcd.model.wording import counted
from vcd.scheduling.framework.policy import PolicyError
from vcd.text.amounts import pods_on_nodes
from vcd.timetravel.planning import PlacedJob, PlanResult

if TYPE_CHECKING:  # importing the API client takes longer than most plans take
    from vcd.daemon.reader.cluster_listing import Listed

_kubeconfig, _context, *_ = CLUSTER_OPTIONS
_LACKING = " of what is read; see the notes"
OURS = ("volcano",)
"""The schedulers whose pods are planned by default."""


class PlannedCluster(msgspec.Struct):
    """The planned cluster, and the kinds that could not be listed there: resource, why, role, without."""

    server: str
    context: str
    missing: list[dict[str, str]]


class Plan(msgspec.Struct):
    """The result of one cycle; see ``planning.PlanResult``."""

    binds: dict[str, str]
    evictions: list[str]
    ungated: list[str]
    pipelined: dict[str, str]
    placed: list[PlacedJob]
    waits: list[DiagnosedWait]
    phases: dict[str, str]
    why: dict[str, list[dict[str, Any]]]
    problems: dict[str, list[str]]
    notes: list[str]
    unknown: list[str]
    refused: list[str]
    cluster: PlannedCluster | msgspec.UnsetType = msgspec.UNSET


def _moment(context: click.Context, option: click.Parameter, value: str | None) -> datetime.datetime | None:
    if value is None:
        return None
    try:
        time = datetime.datetime.fromisoformat(value)
    except ValueError:
        time = None
    if time is None or time.tzinfo is None:
        raise click.BadParameter(f"{value!r} is not an RFC 3339 time; write one like 2026-11-21T08:00:00Z")
    return time


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    type=click.Path(allow_dash=True),
    help="A file or folder of manifests, or - for standard input; may be given several times.",
)
@click.option("--from-cluster", is_flag=True, help="Plan the objects of a running cluster, and change nothing there.")
@_kubeconfig
@_context
@click.option(
    "--scheduler-name",
    "schedulers",
    multiple=True,
    metavar="NAME",
    help="With --from-cluster: the scheduler whose pods are planned; by default volcano. May be repeated.",
)
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    help="With --from-cluster: the namespace for kinds that you may not list in all; by default the context's.",
)
@click.option(
    "--default-queue",
    metavar="NAME",
    default="default",
    show_default=True,
    help="The queue of PodGroups without a queue.",
)
@click.option(
    "--node-selector",
    "node_selector",
    multiple=True,
    metavar="KEY:VALUE",
    help="Use only nodes with one of these labels, as vcd run does. May be repeated.",
)
@click.option(
    "--scheduler-conf",
    type=click.Path(allow_dash=True, dir_okay=False),
    help="The file that vc-scheduler reads; by default its compiled-in configuration.",
)
@click.option("--now", callback=_moment, help="The time to decide for, in RFC 3339; by default now.")
@click.option("--seed", type=int, default=0, show_default=True, help="The seed that orders nodes with equal scores.")
@click.option(
    "--strict",
    is_flag=True,
    help="Exit with 1 also if something in the manifests is not understood; with 2 if you may not list a kind.",
)
@output_option("table", "wide", "json", help="wide: each pod with its node, and why jobs wait as a sentence.")
@report_errors
def plan(
    files: tuple[str, ...],
    from_cluster: bool,
    kubeconfig: str | None,
    context: str | None,
    schedulers: tuple[str, ...],
    namespace: str | None,
    default_queue: str,
    node_selector: tuple[str, ...],
    scheduler_conf: str | None,
    now: datetime.datetime | None,
    seed: int,
    strict: bool,
    output: str,
) -> None:
    """Decide one cycle over manifests or a running cluster; print what it would do, and why jobs wait.

    Every pending pod in manifests counts as this scheduler's. What an API server would refuse is reported on standard
    error, and the rest is planned; so is what plugins find wrong with an object, such as a queue whose quota cannot be
    read. Queues, PriorityClasses and Namespaces in the manifests replace the built-in ones, and missing namespaces are
    created.

    Workloads (Deployments, Jobs, RayClusters, PyTorchJobs and others) are planned by the pods that they create, unless
    these pods are given. Kinds, fields and classes that are not understood are reported once.

    With --from-cluster, the kinds that the configuration reads are listed with your own kubeconfig and rights. A kind
    that you may not list in all namespaces is listed in one, -n or the context's, if you may. What is missing is
    reported, with the role that it needs, and what the decision lacks without it.

    Exits with 0; with 1 if something in the manifests was refused, or, with --strict, is not understood; with 2 if a
    file or a cluster cannot be used, or, with --strict, you may not list a kind.
    """
    own = implied()
    from_cluster = from_cluster or (own.implied and not files)
    if from_cluster == bool(files):
        raise click.UsageError("no input: give manifests with -f, or a running cluster with --from-cluster")
    if not from_cluster and not all(each in (None, ()) for each in (kubeconfig, context, schedulers, namespace)):
        raise click.UsageError("--kubeconfig, --context, --scheduler-name and --namespace are for --from-cluster")
    options = _options(default_queue, node_selector)
    if (*files, scheduler_conf).count("-") > 1:
        raise click.UsageError("- (standard input) can be read only once")
    conf = None if scheduler_conf is None else read_configuration(scheduler_conf)
    listed: Listed | None = None
    try:
        if from_cluster:
            where = kubeconfig or own.kubeconfig, context or own.context, namespace or own.namespace
            listed = _list_cluster(conf, *where, strict=strict)
        result = plan_cycle(
            read_manifests(files) if listed is None else listed.manifests,
            conf,
            now,
            seed,
            None if listed is None else schedulers or OURS,
            default_queue=options.default_queue,
            node_selector=options.node_selector,
        )
    except PolicyError as error:
        raise InvalidConf(scheduler_conf or "the compiled-in configuration", error) from None
    except BadObject as error:
        raise Unusable(str(error)) from None
    _print_findings(result, strict=strict, is_cluster=listed is not None)
    if output == "json":
        print_json(_document(result, listed))
    else:
        lacking = " of what may be listed; see the warnings" if listed is not None and listed.missing else ""
        _print(result, lacking, output)
    end_by(result.refused, result.unknown, strict=strict)


def _print_findings(result: PlanResult, *, strict: bool, is_cluster: bool) -> None:
    """Print problems, faults, notes and unknown fields."""
    if is_cluster:
        print_lines((f"{name} is set aside: {message}" for name, message in result.set_aside.items()), err=True)
    for name, messages in result.problems.items():
        for message in messages:
            print_lines([f"{name}: {message}"], err=True)
    for fault in result.faults:
        print_lines([f"failed: {fault}"], err=True)
    print_lines((f"note: {note}" for note in result.notes), err=True)
    print_reading(result.refused, result.unknown, strict=strict)


def _options(default_queue: str, node_selector: tuple[str, ...]) -> Options:
    """Parse the flags as `vcd run` does. Raises UsageError."""
    try:
        return parse_options({"default-queue": [default_queue], "node-selector": node_selector}, {})
    except OptionError as error:
        raise click.UsageError(str(error)) from None


def _list_cluster(
    conf: str | None, kubeconfig: str | None, context: str | None, namespace: str, *, strict: bool
) -> Listed:
    """List a cluster's objects, and report the kinds that may not be listed. Raises Unusable, PolicyError."""
    module = importlib.import_module("vcd.daemon.reader.cluster_listing")
    importlib.import_module("vcd.daemon.structured_logging").configure()  # else log lines go to standard output
    try:
        found: Listed = asyncio.run(module.list_cluster(conf, kubeconfig, context, namespace))
    except module.ClusterError as error:
        raise Unusable(str(error)) from None
    click.echo(f"note: {len(found.manifests):,} objects listed at {found.server}", err=True)
    for missing in found.missing:
        click.echo(f"{'error' if strict else 'warning'}: {missing.line()}", err=True)
    if strict and found.missing:
        raise Unusable("some kinds that the configuration reads may not be listed; omit --strict to plan without them")
    return found


def _document(result: PlanResult, listed: Listed | None) -> Plan:
    fields = {name: getattr(result, name) for name in Plan.__struct_fields__ if name != "cluster"}
    if listed is None:
        return Plan(**fields)
    missing = [{name: getattr(one, name) for name in one.__struct_fields__} for one in listed.missing]
    return Plan(**fields, cluster=PlannedCluster(listed.server, listed.context, missing))


def _print(result: PlanResult, lacking: str, output: str) -> None:
    """Print what would be done, job by job, and which jobs wait for what; a ``wide`` output names each pod, and has
    the whole sentence."""
    is_wide = output == "wide"
    lines = [
        *_places("WOULD BIND", [(one.job, one.binds) for one in result.placed], is_wide),
        *_pods("WOULD EVICT", result.evictions),
        *_places("WOULD BIND AFTER THESE EVICTIONS", [(one.job, one.pipelined) for one in result.placed], is_wide),
        *_pods("WOULD LIFT THE QUEUE'S SCHEDULING GATE", result.ungated),
    ]
    if not lines:
        lines.append("no pod to bind or evict" + (_LACKING if _lacks(result) else lacking))
    print_lines(lines)
    if result.waits:
        rows = [(one.job, one.queue, one.needs, one.cause, one.text if is_wide else one.why) for one in result.waits]
        print_listing(Listing(("WAITS", "QUEUE", "NEEDS", "CAUSE", "WHY"), rows, ("CAUSE",), WIDTH), output)


def _lacks(result: PlanResult) -> bool:
    """Return whether some of the manifests were not planned."""
    return bool(result.notes or result.unknown or result.refused)


def _places(title: str, jobs: list[tuple[str, dict[str, str]]], is_wide: bool) -> Iterator[str]:
    """Yield a title with counts, and the nodes of each job, by pod if the output ``is_wide``."""
    placed = [(job, nodes) for job, nodes in jobs if nodes]
    if not placed:
        return
    pods = sum(len(nodes) for _, nodes in placed)
    yield f"{title}  {counted(len(placed), 'job')}, {counted(pods, 'pod')}"
    rows = [
        row
        for job, nodes in placed
        for row in (sorted(nodes.items()) if is_wide else [(job, pods_on_nodes(nodes.values()))])
    ]
    width = max(len(name) for name, _ in rows)
    yield from (f"  {name:<{width}}  {places}" for name, places in rows)


def _pods(title: str, pods: list[str]) -> Iterator[str]:
    """Yield a title with a count, and a line for each pod."""
    if pods:
        yield f"{title}  {counted(len(pods), 'pod')}"
        yield from (f"  {pod}" for pod in pods)
