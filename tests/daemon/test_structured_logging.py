"""Lines on standard error: JSON or console, klog's verbosity, no secrets."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from vcd.daemon import structured_logging


class Terminal(io.StringIO):
    """A stream that is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Put back what ``configure`` changes for the whole process."""
    root = logging.getLogger()
    handlers, level, before = list(root.handlers), root.level, structlog.get_config()
    yield
    root.handlers, _ = handlers, root.setLevel(level)
    structlog.configure(**before)


def lines(stream: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in stream.getvalue().splitlines()]


def written(event: str = "event", level: str = "info", verbosity: int = 0, **values: Any) -> list[dict[str, Any]]:
    """The JSON lines that one call writes."""
    stream = io.StringIO()
    structured_logging.configure("json", verbosity, stream)
    getattr(structlog.get_logger("test"), level)(event, **values)
    return lines(stream)


def test_a_line_of_json_has_event_level_and_time() -> None:
    (line,) = written("bound", pod="a/b", seconds=0.5)
    assert (line["event"], line["level"], line["pod"], line["seconds"]) == ("bound", "info", "a/b", 0.5)
    assert line["timestamp"].endswith("Z")


def test_auto_is_json_where_nobody_looks() -> None:
    stream = io.StringIO()
    structured_logging.configure("auto", 0, stream)
    structlog.get_logger().info("event")
    assert lines(stream)[0]["event"] == "event"


def test_auto_is_console_on_a_terminal() -> None:
    stream = Terminal()
    structured_logging.configure("auto", 0, stream)
    structlog.get_logger().info("event", pod="a/b")
    assert "\x1b[" in stream.getvalue()


def test_console_has_no_colours_in_a_file() -> None:
    stream = io.StringIO()
    structured_logging.configure("console", 0, stream)
    structlog.get_logger().info("event", pod="a/b")
    assert "pod=a/b" in stream.getvalue()


@pytest.mark.parametrize(
    ("verbosity", "level", "shown"),
    [(0, "info", True), (3, "debug", False), (4, "debug", True), (-1, "info", False), (-1, "warning", True)],
)
def test_verbosity_is_klogs(verbosity: int, level: str, shown: bool) -> None:
    assert bool(written(level=level, verbosity=verbosity)) is shown


def test_loggers_made_before_are_configured_too() -> None:
    logger = structlog.get_logger("made at import")
    logger.bind(x=1)
    stream = io.StringIO()
    structured_logging.configure("json", 0, stream)
    logger.info("event")
    assert len(lines(stream)) == 1


def test_what_is_bound_to_the_context_is_on_each_line() -> None:
    with structlog.contextvars.bound_contextvars(session=7):
        assert written()[0]["session"] == 7


@pytest.mark.parametrize("form", ["json", "console"])
def test_an_exception_is_written_with_its_traceback(form: str) -> None:
    stream = io.StringIO()
    structured_logging.configure(form, 0, stream)
    try:
        raise ValueError("what went wrong")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "Traceback" in stream.getvalue()
    assert "what went wrong" in stream.getvalue()


def test_lines_of_libraries_have_the_same_form() -> None:
    stream = io.StringIO()
    structured_logging.configure("json", 0, stream)
    logging.getLogger("asyncio").warning("slow callback %s", "x")
    assert [(line["event"], line["level"]) for line in lines(stream)] == [("slow callback x", "warning")]


def test_details_of_libraries_are_left_out() -> None:
    stream = io.StringIO()
    structured_logging.configure("json", 4, stream)
    logging.getLogger("asyncio").debug("using selector")
    assert lines(stream) == []


@pytest.mark.parametrize("key", ["token", "bearer_token", "Authorization", "client_secret", "password", "apiKey"])
def test_values_under_telling_names_are_hidden(key: str) -> None:
    assert written(**{key: "s3cr3t-value"})[0][key] == "(hidden)"


@pytest.mark.parametrize(
    "text",
    [
        "Authorization: Bearer s3cr3t.value-x_y~z",
        "GET https://user:s3cr3t@example.com/ failed",
        "token eyJhbGciOiJs3cr3t.eyJzdWIiOiIxs3cr3t.c2ln_s3cr3t was refused",
        "-----BEGIN RSA PRIVATE KEY-----\ns3cr3t\n-----END RSA PRIVATE KEY-----",
    ],
)
def test_what_looks_like_a_credential_is_hidden_anywhere(text: str) -> None:
    line = json.dumps(written(text, error=text, nested={"headers": [text], "object": ValueError(text)}))
    assert "s3cr3t" not in line


def test_a_credential_in_a_traceback_is_hidden() -> None:
    stream = io.StringIO()
    structured_logging.configure("json", 0, stream)
    try:
        raise ValueError("Bearer s3cr3t")
    except ValueError:
        structlog.get_logger().exception("failed")
    assert "s3cr3t" not in stream.getvalue()


def test_ordinary_words_are_left_alone() -> None:
    text = "node n1: 2 Insufficient cpu; see https://example.com:8443/basic"
    (line,) = written(reason=text, key="default/a", nodes=3)
    assert (line["reason"], line["key"], line["nodes"]) == (text, "default/a", 3)


def line_of(words: str, *arguments: object, line: int = 1) -> logging.LogRecord:
    return logging.LogRecord("aiohttp.server", logging.ERROR, "web_protocol.py", line, words, arguments, None)


def test_a_library_that_writes_the_same_line_over_and_over_is_cut_short_and_counted() -> None:
    now = [0.0]
    repeats = structured_logging.Repeats(few=3, period=60.0, clock=lambda: now[0])
    shown = [repeats.filter(line_of("Error handling request from %s", f"10.0.0.{n}")) for n in range(50)]
    assert shown == [True] * 3 + [False] * 47
    assert repeats.filter(line_of("another line"))
    assert repeats.filter(line_of("Error handling request from %s", "10.0.0.1", line=2))
    now[0] = 60.0
    late = line_of("Error handling request from %s", "10.0.0.9")
    assert repeats.filter(late)
    assert late.getMessage() == "Error handling request from 10.0.0.9 (47 more lines like this one in the last period)"


def test_lines_of_libraries_that_are_repeated_do_not_flood_the_log() -> None:
    out = io.StringIO()
    structured_logging.configure("json", stream=out)
    for number in range(100):
        logging.getLogger("asyncio").error("socket.accept() out of system resource on %d", number)
    assert len(out.getvalue().splitlines()) == 5
