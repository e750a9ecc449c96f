"""What the documentation says holds: generated parts are current, commands parse, links and paths lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

import click
import pytest
import yaml

from vcd.cli import main
from vcd.cli.kubectl import kubectl_vcd
from vcd.daemon.options import normalise_arguments
from vcd.model.events import GATES
from vcd.scheduling.configuration import read_policy
from vcd.state.records import Settings

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
PAGES = sorted(
    [
        *ROOT.glob("*.md"),
        *DOCS.rglob("*.md"),
        *(ROOT / "deploy").rglob("*.md"),
        ROOT / "tests" / "reference" / "README.md",
    ]
)
FENCED = re.compile(r"^( *)```(\w*)\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
SUFFIXES = (".py", ".md", ".sql", ".yaml", ".yml", ".toml", ".txt", ".sh", ".json")
VOLCANOS = ("pkg/", "docs/design/")
"""Where paths of Volcano's repository begin; nothing here has such a path."""


def name_of(page: Path) -> str:
    """Return a page's path from the root."""
    return page.relative_to(ROOT).as_posix()


@cache
def generator() -> ModuleType:
    """docs/generate.py, which is a program and in no package."""
    spec = importlib.util.spec_from_file_location("generate", DOCS / "generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# --- pages ------------------------------------------------------------------------------------------------------------

LONGEST = 400
"""Lines of a page."""


def test_a_page_begins_with_its_reader_and_is_not_too_long() -> None:
    for page in DOCS.rglob("*.md"):
        if page.parent.name == "plugins" or page == DOCS / "README.md":
            continue
        text = page.read_text()
        begin = re.sub(r"\A(<!-- .*? -->\n\n)?# .*\n\n", "", text)
        assert begin.startswith("For "), page
        assert len(text.splitlines()) <= LONGEST, page


# --- generated parts --------------------------------------------------------------------------------------------------


def test_generated_parts_are_current() -> None:
    """In a process of its own: other tests declare reasons, too."""
    checked = subprocess.run([sys.executable, "docs/generate.py", "--check"], cwd=ROOT, capture_output=True, text=True)
    assert (checked.stdout, checked.returncode) == ("", 0)


def test_a_changed_part_is_found() -> None:
    text = "<!-- begin: flags -->\n--nothing\n<!-- end: flags -->"
    assert "--leader-elect-lease-duration" in generator().with_parts(text)


def test_every_gauge_of_a_session_is_described() -> None:
    assert set(generator().DESCRIBED) == set(generator().given())


def test_every_gate_is_described() -> None:
    page = (DOCS / "operations" / "troubleshooting.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| ", page.split("<!-- gates -->")[1], re.MULTILINE)
    assert set(rows) == set(GATES)


def test_the_time_until_a_part_of_a_gang_is_released_is_the_real_one() -> None:
    page = (DOCS / "operations" / "failures.md").read_text()
    assert f"evicts what is placed after {Settings().release_after} s" in page


# --- commands ---------------------------------------------------------------------------------------------------------


def commands(text: str) -> Iterator[list[str]]:
    """The ``vcd`` command lines of a page's blocks, as words."""
    for _, language, block in FENCED.findall(text):
        if language not in ("sh", "console", ""):
            continue
        for line in block.replace("\\\n", " ").splitlines():
            if language == "console" and not line.startswith("$ "):
                continue
            for part in _simple_commands(line.removeprefix("$ ")):
                if part[:2] == ["kubectl", "vcd"]:
                    yield ["kubectl", *part[2:]]
                elif "vcd" in part[:1] or ("--" in part and part[part.index("--") + 1 :][:1] == ["vcd"]):
                    yield part[part.index("vcd") + 1 :]


def _simple_commands(line: str) -> Iterator[list[str]]:
    """The commands that a shell would run for a line, each as words; nothing for what is no command."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
    lexer.whitespace_split = True
    try:
        words = list(lexer)
    except ValueError:
        return
    part: list[str] = []
    for word in [*words, ";"]:
        if re.fullmatch(r"[;|&]+", word):
            yield part
            part = []
        else:
            part.append(word)


def found(words: list[str]) -> tuple[click.Command, list[str], click.Context]:
    """The command that words name, and the words after its name. Raises UsageError where there is none."""
    command: click.Command = main
    if words[:1] == ["kubectl"]:
        command, words = kubectl_vcd, words[1:]
    context = click.Context(command, info_name="vcd")
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        name, inner, words = command.resolve_command(context, words)
        assert name is not None and inner is not None
        command, context = inner, click.Context(inner, info_name=name, parent=context)
    return command, words, context


def names_a_log(context: click.Context) -> bool:
    """Whether a command that needs a log is told which."""
    given = context.params
    optional = "from_cluster" not in given or context.command.name in ("plan", "show")
    return (
        optional
        or any(given.get(name) for name in ("from_cluster", "event_log", "log_file"))
        or len(given.get("paths", ())) > 1
    )


def mistake(words: list[str], *, whole: bool) -> str | None:
    """What is wrong with a ``vcd`` command line; one that is not ``whole`` may leave out what is required."""
    is_plugin = words[:1] == ["kubectl"]
    try:
        command, rest, context = found(list(words))
        if command.name == "run":
            rest = normalise_arguments(rest)
        if whole:
            command.parse_args(context, rest)
            if not is_plugin and not names_a_log(context):
                return "no log is given: --event-log"
        elif not isinstance(command, click.Group):
            command.make_parser(context).parse_args(rest)
    except click.BadOptionUsage as error:
        return error.format_message() if whole or isinstance(error, click.NoSuchOption) else None  # a value left out
    except click.UsageError as error:
        return error.format_message()
    except click.exceptions.Exit:
        return None  # --help, --version
    return None


def test_commands_in_blocks_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    wrong = {
        (name_of(page), shlex.join(words)): mistake(words, whole=True)
        for page in PAGES
        for words in commands(page.read_text())
    }
    assert {line: error for line, error in wrong.items() if error} == {}


def test_commands_in_sentences_are_taken() -> None:
    wrong = {
        (name_of(page), code): mistake(shlex.split(code)[1:], whole=False)
        for page in PAGES
        for code in INLINE.findall(FENCED.sub("", page.read_text()))
        if re.match(r"vcd [a-z-]", code)
    }
    assert {line: error for line, error in wrong.items() if error} == {}


def test_the_pages_hold_commands() -> None:
    lines = [words for page in PAGES for words in commands(page.read_text())]
    assert {"plan", "explain", "replay", "log", "conf"} <= {words[0] for words in lines}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["explian", "job", "x"], "explian"),
        (["explain", "job", "x", "--event-lag", "f"], "--event-lag"),
        (["explain", "job", "x"], "--event-log"),
        (["run", "--leader-elects"], "--leader-elects"),
        (["log", "ls", "f", "--type", "nothing"], "nothing"),
        (["kubectl", "explain", "job", "x", "--contexts", "y"], "--contexts"),
        (["kubectl", "run"], "run"),
    ],
    ids=["command", "option", "required", "flag", "choice", "plugin's option", "plugin's command"],
)
def test_a_wrong_command_is_found(words: list[str], said: str) -> None:
    assert said in str(mistake(words, whole=True))


SHIPPED = sorted(
    path for top in ("vcd", "deploy", "docs", "examples") for path in (ROOT / top).rglob("*") if path.is_file()
)
OF_AN_INDEX = re.compile(
    r"pip install(?: -\S+)* ['\"]?(?:vcd(?:-scheduler)?|kubectl-vcd)(?:\[\w+\]|==[\w.]+)?(?=[ '\"`\n]|$)"
)
"""A distribution by its bare name: what an index has by the name of vcd is another product."""


def test_nothing_is_installed_from_an_index_by_the_name_of_vcd() -> None:
    texts = [*PAGES, *(path for path in SHIPPED if path.suffix in (".py", ".md", ".yaml", ".txt", ".html", ""))]
    assert [path for path in texts if OF_AN_INDEX.search(path.read_text(encoding="utf-8"))] == []


@pytest.mark.parametrize(
    "text", ["`pip install vcd`", "pip install 'vcd-scheduler[s3]'", "python -m pip install -U vcd==0.2.0"]
)
def test_an_installation_from_an_index_is_found(text: str) -> None:
    assert OF_AN_INDEX.search(text)


@pytest.mark.parametrize(
    "text", ["pip install ./vcd", "pip install dist/vcd_scheduler-0.2.0-py3-none-any.whl", "pip install ."]
)
def test_an_installation_of_files_is_none(text: str) -> None:
    assert not OF_AN_INDEX.search(text)


def test_make_targets_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {
        name
        for page in PAGES
        for name in re.findall(r"`?\bmake ([a-z-]+)\b(?=`|$|\s+#)", page.read_text(), re.MULTILINE)
    }
    assert named - targets == set()


# --- configuration ----------------------------------------------------------------------------------------------------


def configurations() -> list[tuple[str, str]]:
    """The configuration files that pages show: page, text."""
    return [
        (name_of(page), block)
        for page in PAGES
        for _, language, block in FENCED.findall(page.read_text())
        if language == "yaml" and re.search(r"^tiers:", block, re.MULTILINE)
    ]


@pytest.mark.parametrize("text", [text for _, text in configurations()], ids=[page for page, _ in configurations()])
def test_a_configuration_is_read_without_a_warning(text: str) -> None:
    parsed: dict[str, Any] = yaml.safe_load(text)
    parsed.setdefault("actions", "enqueue, allocate, backfill")
    assert read_policy(yaml.safe_dump(parsed)).warnings == ()


# --- links and paths --------------------------------------------------------------------------------------------------


@cache
def anchors(page: Path) -> set[str]:
    """The anchors that a page's headings get."""
    headings = re.findall(r"^#+ (.+)$", FENCED.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def leads_somewhere(link: str, page: Path) -> bool:
    """Return whether a link has a scheme, or leads to a file here and to a heading of it."""
    if re.match(r"[a-z]+:", link):
        return True
    path, _, anchor = link.partition("#")
    target = (page.parent / path).resolve() if path else page
    return target.exists() and (not anchor or anchor in anchors(target))


def test_links_lead_somewhere() -> None:
    links = [(page, link) for page in PAGES for link in LINK.findall(FENCED.sub("", page.read_text()))]
    assert [(name_of(page), link) for page, link in links if not leads_somewhere(link, page)] == []


@cache
def files() -> tuple[str, ...]:
    """Every file and folder (with a slash) of the repository's own, from its root."""
    tops = ("vcd", "tests", "docs", "deploy", "bench", "examples", "migrations", "grafana", ".ci")
    paths = [path for top in tops for path in (ROOT / top, *(ROOT / top).rglob("*"))]
    paths += [path for path in ROOT.iterdir() if path.is_file()]
    return tuple(path.relative_to(ROOT).as_posix() + ("/" if path.is_dir() else "") for path in paths)


def exists(named: str, page: Path) -> bool:
    """Whether a path is one from the root, from the page, or the end of one (``actions/enqueue.py``)."""
    if (ROOT / named).exists() or (page.parent / named).exists():
        return True
    return any(f"/{path}".endswith(f"/{named}") for path in files())


def test_paths_exist() -> None:
    named = {
        (page, code)
        for page in PAGES
        for code in INLINE.findall(FENCED.sub("", page.read_text()))
        if re.fullmatch(r"[\w.][\w./-]*", code)
        and "NNNN" not in code
        and not code.startswith(VOLCANOS)
        and (
            code.endswith(SUFFIXES)
            or code.endswith("/")
            or code.partition("/")[0] in ("vcd", "tests", "deploy", "docs")
        )
    }
    assert sorted((name_of(page), path) for page, path in named if not exists(path, page)) == []
