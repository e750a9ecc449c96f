"""Writes the parts of the documentation that follow from the code: flags, metrics, plugins, what commands print.

``python docs/generate.py`` writes them; with ``--check`` it writes nothing, and exits with 1 naming the files that are
not current. A part lies between ``<!-- begin: NAME -->`` and ``<!-- end: NAME -->``; docs/plugins/ and the
schemas of docs/schemas/ are written whole.
"""

from __future__ import annotations

import inspect
import itertools
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from markdown_it import MarkdownIt
from markdown_it.token import Token
from prometheus_client.parser import text_string_to_metric_families

from vcd.cli.schemas import documents, schema_of
from vcd.daemon.metrics import metric_families
from vcd.daemon.metrics.metric_series import Family
from vcd.daemon.metrics.metrics_collector import Metrics
from vcd.daemon.options import FLAGS, WITHOUT_EFFECT, Flag
from vcd.model.events import SessionDecided, encode_plan
from vcd.model.installation_faults import FAULTS
from vcd.model.kinds import Kind
from vcd.model.quantity import format_units
from vcd.model.reasons import CODES, Cause
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.decide import run
from vcd.scheduling.framework.accounts import KeepsAccounts
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import Argument, format_duration
from vcd.scheduling.framework.framework import framework_of
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import IDLE_FLAGS, POINTS
from vcd.scheduling.framework.policy import METRICS
from vcd.scheduling.framework.registry import actions, plugins, series
from vcd.scheduling.search.parts import ANY_KEY
from vcd.scheduling.session_close import plan_of
from vcd.state.snapshot import SnapshotMaker
from vcd.timetravel.planning import state_of

ROOT = Path(__file__).resolve().parents[1]
PAGES = ROOT / "docs" / "plugins"
REASONS = ROOT / "docs" / "semantics" / "reasons.md"
RUNBOOKS = tuple(
    ROOT / "docs" / "runbooks" / f"{name}.md"
    for name in ("README", "leadership", "installation", "jobs", "speed", "log")
)
SCHEMAS = ROOT / "docs" / "schemas"
WITH_PARTS = (
    *("README.md", "docs/get-started.md", "docs/operations/configuration.md", "docs/reference/flags.md"),
    *("docs/reference/metrics.md", "docs/runbooks/installation.md", "docs/schemas/README.md"),
)
"""Pages with generated parts."""
_YES = {True: "yes", False: ""}
_MARKED = re.compile(r"(<!-- begin: ([a-z-]+) -->\n).*?(<!-- end: \2 -->)", re.DOTALL)
_TIME = re.compile(r"(\d{4}-\d\d-\d\d[ T])?\d\d:\d\d:\d\d(\.\d+Z)?|(?<=WAITING )(less than )?[\d.]+ s\b")
_HEAD = "<!-- Written by docs/generate.py from {source}; edit that, not this. -->\n\n"


def table(columns: Iterable[str], rows: Iterable[Iterable[str]]) -> str:
    """A Markdown table."""
    columns = list(columns)
    lines = [columns, ["---"] * len(columns), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def code(text: object) -> str:
    """A word as code; nothing for an empty one."""
    return f"`{text}`" if str(text) else ""


# --- flags ------------------------------------------------------------------------------------------------------------


def flags() -> str:
    """The flags that have an effect."""
    rows = (
        (code(flag.written), _takes(flag), code(flag.default), flag.doc, code(flag.variable))
        for flag in FLAGS
        if not flag.idle
    )
    return table(("flag", "takes", "default", "meaning", "environment"), rows)


def _takes(flag: Flag) -> str:
    limits = [f"at least {flag.low:g}"] if flag.low is not None else []
    limits += [f"more than {flag.above:g}"] if flag.above is not None else []
    return ", ".join([flag.kind.removesuffix("s"), *limits])


def without_effect() -> str:
    """Every flag, enable flag and argument that is taken for vc-scheduler's sake and changes nothing."""
    rows = [("command line", code(flag.written), _why_idle(flag)) for flag in WITHOUT_EFFECT]
    rows += [("a plugin's entry", code(flag), why) for flag, why in IDLE_FLAGS.items()]
    for what, found in (("plugin", plugins()), ("action", actions())):
        for name in ours(found):
            declared = nested(found[name].arguments)
            rows += [(f"{what} {name}", code(key), one.without_effect) for key, one in declared if one.without_effect]
    return table(("where", "switch", "why it has no effect"), ((*row, f"{why}.") for *row, why in rows))


def _why_idle(flag: Flag) -> str:
    return f"{flag.idle}. Other values than {code(flag.default)} are refused" if flag.refusal else flag.idle


# --- metrics ----------------------------------------------------------------------------------------------------------

_SPECIMEN: list[dict[str, Any]] = [
    {
        "kind": "Node",
        "metadata": {"name": "node"},
        "status": {"allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110", "nvidia.com/gpu": "8"}},
    },
    {
        "kind": "Node",
        "metadata": {
            "name": "cards",
            "labels": {"nvidia.com/gpu.product": "NVIDIA-H200", "nvidia.com/gpu.memory": "143771"},
        },
        "status": {
            "allocatable": {
                "cpu": "8",
                "memory": "32Gi",
                "pods": "110",
                "nvidia.com/gpu": "1",
            }
        },
    },
    {
        "kind": "Queue",
        "metadata": {"name": "research", "annotations": {"volcano.sh/card.quota": '{"NVIDIA-H200": 1}'}},
        "spec": {
            "capability": {"cpu": "4", "memory": "8Gi", "nvidia.com/gpu": "2"},
            "guarantee": {"resource": {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": "1"}},
        },
    },
    *(
        {
            "kind": "PodGroup",
            "metadata": {"name": name, "namespace": "default", "creationTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"minMember": minimum, "queue": "research"},
            "status": {"phase": "Inqueue"},
        }
        for name, minimum in (("placed", 1), ("waits", 2))
    ),
    *(
        {
            "kind": "Pod",
            "metadata": {
                "name": name,
                "namespace": "default",
                "annotations": {"scheduling.k8s.io/group-name": name},
                "creationTimestamp": "2026-01-01T00:00:00Z",
            },
            "spec": {"containers": [{"name": "main", "resources": {"requests": {"cpu": "1", "nvidia.com/gpu": "1"}}}]},
        }
        for name in ("placed", "waits")
    ),
]
"""A cluster that makes every plugin give every gauge that it has."""
DESCRIBED = {**series(), **metric_families.DOCS}
_ARGUMENTS = {"extender": {"extender.urlPrefix": "http://127.0.0.1"}}
"""Arguments without which a plugin cannot be named."""


@cache
def given() -> Mapping[str, tuple[frozenset[str], tuple[str, ...]]]:
    """Return the gauges of a session with all plugins: name -> (labels, the plugins that expose it)."""
    policy = read_policy(
        json.dumps(
            {
                "actions": ", ".join(ours(actions())),
                "tiers": [{"plugins": [{"name": n, "arguments": _ARGUMENTS.get(n, {})} for n in ours(plugins())]}],
            }
        )
    )
    session = run(SnapshotMaker(state_of(_SPECIMEN)).snapshot(), policy, 0, 0)
    plan = plan_of(session)
    metrics = Metrics()
    record = SessionDecided(1, session.snapshot.sequence, policy.digest, 0, 0, 0, {}, encode_plan(plan))
    metrics.end_session(metrics.begin_session(session, plan, record, {})())
    plugins_of: dict[str, set[str]] = {}
    for plugin in framework_of(session).plugins:
        for gauge in plugin.gauges():
            plugins_of.setdefault(gauge.name, set()).add(plugin.name)
    page = text_string_to_metric_families(metrics.freeze()().decode())
    samples = [sample for family in page for sample in family.samples]
    labels: dict[str, frozenset[str]] = {}
    for sample in samples:
        labels[sample.name] = labels.get(sample.name, frozenset()) | sample.labels.keys()
    declared = {family.name for family in declared_families()}
    undeclared = {name for name in labels if name in DESCRIBED or name in plugins_of} - declared
    return {name: (labels[name], tuple(sorted(plugins_of.get(name, ())))) for name in sorted(undeclared)}


def declared_families() -> list[Family]:
    """The families of vcd.daemon.metrics.metric_families."""
    return [*metric_families.DAEMON, *metric_families.LEADER, *metric_families.LAST_SESSION, *metric_families.JOBS]


def metrics(prefix: str) -> str:
    """Every series whose name begins with ``prefix``."""
    rows = [(one.name, one.kind, one.labels, one.doc) for one in declared_families()]
    for name, (labels, sources) in given().items():
        source = f" Plugins: {', '.join(sources)}." if sources else ""
        rows.append((name, "gauge", tuple(sorted(labels)), DESCRIBED.get(name, "") + source))
    chosen = sorted(row for row in rows if row[0].startswith(prefix))
    shown = ((code(name), kind, ", ".join(map(code, labels)), doc) for name, kind, labels, doc in chosen)
    return table(("series", "type", "labels", "meaning"), shown)


# --- plugins and actions ----------------------------------------------------------------------------------------------


def ours(found: Mapping[str, type[Any]]) -> list[str]:
    """The names of what is in this repository; an installed distribution may offer more."""
    return [name for name, kind in found.items() if kind.__module__.startswith("vcd.")]


def prose(kind: type[Any]) -> str:
    """A class's docstring as Markdown; pages of docs/ that it names are links."""
    text = inspect.cleandoc(kind.__doc__ or "").replace("``", "`")
    return re.sub(r"docs/(?!design/)([\w/-]+)\.md", r"[\1](../\1.md)", text).strip()


def summary(kind: type[Any]) -> str:
    """The first sentence of a class's docstring."""
    return re.split(r"(?<=\.)\s", " ".join(prose(kind).split("\n\n")[0].split()))[0]


def arguments_table(arguments: tuple[Argument, ...]) -> str:
    """Keys, what they take, defaults and meaning; what mappings and lists hold stands below them."""
    rows = ((code(key), one.allowed, code(_default(one)), _meaning(one)) for key, one in nested(arguments))
    return table(("argument", "value", "default", "meaning"), rows)


def nested(arguments: Iterable[Argument], before: str = "") -> Iterator[tuple[str, Argument]]:
    """Every argument with the way to it: ``thresholds.cpu``, ``strategies[].name``."""
    for one in arguments:
        key = f"{before}{one.key}"
        yield key, one
        yield from nested(one.fields or (), f"{key}[]." if one.kind == "list" else f"{key}.")


def _meaning(argument: Argument) -> str:
    words = f"Required. {argument.doc}" if argument.required else argument.doc
    return f"{words} No effect: {argument.without_effect}." if argument.without_effect else words


def _default(argument: Argument) -> str:
    value = argument.default
    if value is None or value in ((), {}):
        return ""
    if argument.kind == "memory":
        return format_units(value)
    if argument.kind == "cpu":
        return f"{value}m"
    if argument.kind == "duration":
        return format_duration(value)
    if isinstance(value, tuple) and all(isinstance(each, str) for each in value):
        return ", ".join(value)
    return value if isinstance(value, str) else json.dumps(dict(value) if isinstance(value, Mapping) else value)


def points_table(kind: type[Plugin]) -> str:
    """The extension points that a plugin implements, in the order of their declaration."""
    rows = []
    for name, point in POINTS.items():
        method = inspect.getattr_static(kind, name, None)
        if method is vars(KeepsAccounts).get(name, object):
            method = inspect.getattr_static(kind, "charge")  # which says whose accounts they are
        if method is not None:
            doc = " ".join(inspect.cleandoc(method.__doc__ or "").split("\n\n")[0].split())
            rows.append((code(name), code(point.flag), doc))
    return table(("extension point", "turned off by", "what it returns"), rows)


def plugin_page(kind: type[Plugin]) -> str:
    """A plugin's page."""
    path = inspect.getfile(kind)
    source = Path(path).relative_to(ROOT).as_posix()
    parts = [
        _HEAD.format(source=source) + f"# {kind.name}\n",
        f"{prose(kind)}\n",
        f"Code: [{source}](../../{source})\n",
    ]
    parts.append("Formulas, and choices between sources: [semantics](../semantics/plugins.md)\n")
    parts.append(f"## Extension points\n\n{points_table(kind)}")
    if kind.arguments:
        parts.append(f"## Arguments\n\n{arguments_table(kind.arguments)}\n{_example(kind)}")
    else:
        parts.append("## Arguments\n\nNone.\n")
    reads = ", ".join(map(_read, kind.kinds)) or "none"
    parts.append(f"## What it reads\n\nKinds in addition to Pod, Node, PodGroup and Queue: {reads}.\n")
    keys = [key for key in kind.keys if key != ANY_KEY]
    if keys:
        parts.append(f"Annotations and labels: {', '.join(map(code, keys))}.\n")
    gauges = [name for name, (_, sources) in given().items() if kind.name in sources]
    if gauges:
        listed = "".join(f"- {code(name)}\n" for name in gauges)
        parts.append(f"## Series\n\n[Metrics](../reference/metrics.md) describes them.\n\n{listed}")
    return "\n".join(parts)


def _read(kind: str | Kind) -> str:
    """A kind that is read; of which of its objects, where these are not all."""
    if isinstance(kind, str):
        return code(kind)
    keys = [code(key) for key in kind.argument_keys()]
    return code(kind.manifest_kind) + (f" (the one that {' and '.join(keys)} name)" if keys else "")


def _example(kind: type[Plugin]) -> str:
    fixed = {one.key: _default(one) for one in kind.arguments if not one.is_dynamic and not one.without_effect}
    given = {key: text for key, text in {**fixed, **_ARGUMENTS.get(kind.name, {})}.items() if text}
    if not given:
        return ""
    lines = "".join(f"      {key}: {text}\n" for key, text in given.items())
    return (
        "The defaults, as a configuration file has them:\n\n```yaml\ntiers:\n- plugins:\n"
        f"  - name: {kind.name}\n    arguments:\n{lines}```\n"
    )


def index_page() -> str:
    """docs/plugins/README.md: plugins, actions, extension points."""
    known, acts = plugins(), actions()
    parts = [_HEAD.format(source="vcd/scheduling/") + "# Plugins and actions\n"]
    rows = [(f"[{name}]({name}.md)", summary(known[name])) for name in ours(known)]
    parts.append(f"## Plugins\n\n{table(('plugin', 'what it does'), rows)}")
    parts.append(
        "## Actions\n\n[Actions](../semantics/actions.md) describes the steps of each.\n\n"
        + table(("action", "what it does"), ((code(n), summary(acts[n])) for n in ours(acts)))
    )
    for name in ours(acts):
        action: type[Action] = acts[name]
        if action.arguments:
            parts.append(f"Arguments of `{name}`, under `configurations`:\n\n{arguments_table(action.arguments)}")
    parts.append(
        "## Extension points\n\nActions call plugins at these points. A flag in a plugin's entry of the configuration "
        "removes it from a point. [Extension points and tiers](../semantics/points.md) explains how results are "
        f"combined.\n\n{_all_points()}"
    )
    return "\n".join(parts)


def _all_points() -> str:
    known = plugins()
    rows = []
    for name, point in POINTS.items():
        users = [f"[{one}]({one}.md)" for one in ours(known) if hasattr(known[one], name)]
        rule = (inspect.getdoc(point.rule) or "").rstrip(".")
        rows.append((code(name), code(point.flag), f"{rule[0].lower()}{rule[1:]}", ", ".join(users)))
    return table(("extension point", "flag", "how results are combined", "plugins"), rows)


# --- reasons ----------------------------------------------------------------------------------------------------------


def reasons_page() -> str:
    """All reasons that may keep a group waiting, by cause."""
    dict(plugins()), dict(actions())
    found = sorted(CODES.values(), key=lambda reason: (list(Cause).index(reason.cause), reason.name))
    rows = (
        (code(reason.label), code(reason.name), reason.words, reason.mend, "yes" if reason.nodes_help else "")
        for reason in found
    )
    head = _HEAD.format(source="the declarations of reasons") + (
        "# Reasons\n\n"
        "For readers of conditions, metrics and JSON. Each row is a reason why pods wait. The cause is the label\n"
        "`reason` of `vcd_waiting_groups`, and `cause` in JSON; the code is `code` there. In the text, `{role}`\n"
        "stands for a name or an amount. A reason without a remedy ends when other jobs end, or when resources or\n"
        "quota become available.\n\n"
    )
    return head + table(("cause", "code", "text", "remedy", "new nodes may help"), rows)


# --- schemas ----------------------------------------------------------------------------------------------------------


def schemas() -> Iterator[tuple[Path, str]]:
    """The schema of each kind of document that a command prints."""
    for kind in {each.__name__: each for each in documents().values()}.values():
        yield SCHEMAS / f"{kind.__name__}.json", json.dumps(schema_of(kind), indent=2, ensure_ascii=False) + "\n"


def printed_documents() -> str:
    """Which command prints which kind of document."""
    rows = ((code(f"vcd {name}"), f"[{kind.__name__}]({kind.__name__}.json)") for name, kind in documents().items())
    return table(("command, with `-o json`", "prints"), rows)


# --- runbooks, for the page ------------------------------------------------------------------------------------------

_RUNBOOKS_PAGE = """\
<!doctype html>
<!-- Written by docs/generate.py from docs/runbooks/; edit that, not this. -->
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>vcd: runbooks</title>
<link rel="icon" href="icon.svg">
<link rel="stylesheet" href="style.css">
</head>
<body>
<article>
{body}</article>
</body>
</html>
"""


def _within_page(tokens: Iterable[Token]) -> Iterator[Token]:
    """Return the tokens with links to runbooks as links within the page, and other links as text."""
    leads_out = False
    for token in tokens:
        if token.type == "link_open":
            page, _, anchor = str(token.attrGet("href")).partition("#")
            leads_out = not anchor or (page != "" and page not in {path.name for path in RUNBOOKS})
            token.attrSet("href", f"#{anchor}")
        if not (leads_out and token.type.startswith("link_")):
            yield token


def runbooks_page() -> str:
    """Return all runbooks as one page, as vcd serves it to readers of an alert. Other pages of docs/ are not served."""
    text = "\n".join(with_parts(path.read_text(encoding="utf-8")) for path in RUNBOOKS)
    tokens = MarkdownIt().enable("table").parse(re.sub(r"<!-- .*? -->\n", "", text))
    for opening, content in itertools.pairwise(tokens):
        if opening.type == "heading_open":
            opening.attrSet("id", re.sub(r"[^\w\- ]", "", content.content.lower()).replace(" ", "-"))
        if opening.type == "inline":
            opening.children = list(_within_page(opening.children or ()))
    return _RUNBOOKS_PAGE.format(body=MarkdownIt().renderer.render(tokens, MarkdownIt().options, {}))


# --- what commands print ----------------------------------------------------------------------------------------------


def printed(*commands: str) -> str:
    """What ``vcd`` commands print on standard output, run one after the other in the repository's root."""
    parts = []
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            words = [sys.executable, "-m", "vcd", *shlex.split(command)[1:]]
            words = [f"{folder}/{word}" if word.endswith(".sqlite") else word for word in words]
            environment = {**os.environ, "NO_COLOR": "1"}
            done = subprocess.run(
                words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False, timeout=120
            )
            if done.returncode:
                raise RuntimeError(f"{command}: exit code {done.returncode}: {done.stderr}")
            text = "\n".join(line.rstrip() for line in done.stdout.replace(f"{folder}/", "").splitlines())
            parts.append(f"$ {command}\n{text}\n")
    return "```console\n" + "\n".join(parts) + "```\n"


def first_plan() -> str:
    """The first plan of docs/get-started.md."""
    return printed("vcd plan -f examples/gang.yaml")


def first_explanation() -> str:
    """The first explanation of docs/get-started.md."""
    log = "events.sqlite"
    sim = f"vcd sim --nodes cpu=1,memory=1Gi --workload examples/gang.yaml --exit-when-idle --event-log {log}"
    text = printed(sim, f"vcd explain job train --event-log {log}", f"vcd explain job evaluate --event-log {log}")
    return re.sub(
        r"(\$ vcd sim [^\n]*\n).*?\n(?=\$ )", r"\1...\n\n", text, count=1, flags=re.DOTALL
    )  # it tells seconds


# --- writing ----------------------------------------------------------------------------------------------------------


def faults() -> str:
    """The faults of the installation."""
    rows = ((code(name), one.what, one.subject, one.do, _YES[one.not_ready]) for name, one in FAULTS.items())
    return table(("code", "what", "subject", "what to do", "fails /readyz"), rows)


PARTS: Mapping[str, Callable[[], str]] = {
    "flags": flags,
    "without-effect": without_effect,
    "usage-source": lambda: arguments_table(METRICS),
    "volcano-metrics": lambda: metrics("volcano_"),
    "faults": faults,
    "vcd-metrics": lambda: metrics("vcd_"),
    "documents": printed_documents,
    "plan": first_plan,
    "explanation": first_explanation,
}
"""The generated parts of pages, by name."""


def timeless(text: str) -> str:
    """Return a text without times of day and lengths of waits, which differ each time that it is made."""
    return _TIME.sub("TIME", text)


def with_parts(text: str) -> str:
    """A page with its marked parts made anew; one that differs in times of day only stays. KeyError: no such part."""

    def part(match: re.Match[str]) -> str:
        made = f"{match[1]}\n{PARTS[match[2]]()}\n{match[3]}"
        return match[0] if timeless(made) == timeless(match[0]) else made

    return _MARKED.sub(part, text)


def pages() -> Iterator[tuple[Path, str]]:
    """Every page that holds something generated, as it should be."""
    for path in (ROOT / name for name in WITH_PARTS):
        yield path, with_parts(path.read_text(encoding="utf-8"))
    yield REASONS, reasons_page()
    yield from schemas()
    yield ROOT / "vcd" / "view" / "static" / "runbooks.html", runbooks_page()
    yield PAGES / "README.md", index_page()
    for name in ours(plugins()):
        yield PAGES / f"{name}.md", plugin_page(plugins()[name])


def stale() -> list[tuple[Path, str | None]]:
    """The pages that are not current, with what they should hold (None: nothing generates it any more)."""
    wanted = dict(pages())
    found: list[tuple[Path, str | None]] = [
        (path, text) for path, text in wanted.items() if not path.exists() or path.read_text(encoding="utf-8") != text
    ]
    return found + [(path, None) for path in _written_whole() if path not in wanted]


def _written_whole() -> list[Path]:
    """The files that are there of those that are made here and by nobody else."""
    return sorted([*PAGES.glob("*.md"), *SCHEMAS.glob("*.json")])


def main(arguments: list[str]) -> int:
    """The exit code."""
    old = stale()
    for path, text in old:
        if arguments == ["--check"]:
            sys.stdout.write(f"{path.relative_to(ROOT)} is not current; run: python docs/generate.py\n")
        elif text is None:
            path.unlink()
        else:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    return 1 if old and arguments == ["--check"] else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
