"""Configures structlog: lines on standard error, as JSON or in colours for a terminal, with secrets hidden.

It has nothing to do with the event log (`vcd.eventlog`).
"""

from __future__ import annotations

import logging
import re
import sys
import time
from collections.abc import Callable, MutableMapping
from typing import Any, TextIO

import structlog
from structlog.typing import Processor

DETAILED = 4
"""klog's verbosity from which details are written; Volcano's per-job lines begin at 3, which its chart asks for."""

_WORDS = 60
"""Characters by which lines of one kind are known."""
_KINDS = 1000
"""Kinds of lines that are counted at a time."""

_HIDDEN = "(hidden)"
_SECRET_KEYS = re.compile(r"token|password|passwd|secret|authorization|credential|api_?key|private_?key", re.IGNORECASE)
_SECRET_TEXTS = re.compile(
    r"(?P<scheme>\b(?:Bearer|Basic)\s+)[\w.~+/=-]+"
    r"|(?P<url>://[^\s/@:]*:)[^\s/@]+(?=@)"
    r"|\beyJ[\w-]+\.[\w-]+\.[\w-]*"
    r"|-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|$)",
    re.DOTALL | re.IGNORECASE,
)


def configure(log_format: str = "auto", verbosity: int = 0, stream: TextIO | None = None) -> None:
    """Send structlog's and the standard library's lines to ``stream`` (standard error unless given).

    ``log_format`` is auto, json or console, where auto is console on a terminal; ``verbosity`` is klog's ``-v``.
    """
    out = sys.stderr if stream is None else stream
    console = log_format == "console" or (log_format == "auto" and out.isatty())
    level = level_of(verbosity)
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True),
        structlog.processors.StackInfoRenderer(),
    ]
    renderer: Processor = structlog.processors.JSONRenderer()
    if console:
        # the traceback is text already when it comes here, so that secrets could be taken out of it
        renderer = structlog.dev.ConsoleRenderer(colors=out.isatty(), exception_formatter=structlog.dev.plain_traceback)
    last: list[Processor] = [structlog.processors.format_exc_info, hide_secrets, renderer]
    structlog.configure(
        processors=[*shared, *last],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.WriteLoggerFactory(out),
        cache_logger_on_first_use=False,  # loggers are made at import, before this is called
    )
    _take_over_standard_library(out, level, shared, last)


def level_of(verbosity: int) -> int:
    """The least level that is written at klog's verbosity: info as usual, debug from 4 on, warning below 0."""
    if verbosity < 0:
        return logging.WARNING
    return logging.DEBUG if verbosity >= DETAILED else logging.INFO


def hide_secrets(logger: Any, name: str, event: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
    """Take credentials out of a line: values under telling names, and what looks like one inside any text."""
    for key, value in event.items():
        event[key] = _HIDDEN if _SECRET_KEYS.search(key) else _without_secrets(value)
    return event


def _without_secrets(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET_TEXTS.sub(lambda found: f"{found['scheme'] or found['url'] or ''}{_HIDDEN}", value)
    if isinstance(value, dict):
        return {
            key: _HIDDEN if _SECRET_KEYS.search(str(key)) else _without_secrets(part) for key, part in value.items()
        }
    if isinstance(value, list | tuple):
        return [_without_secrets(part) for part in value]
    return value if value is None or isinstance(value, bool | int | float) else _without_secrets(str(value))


class Repeats(logging.Filter):
    """Lets a few lines of one kind through in each period, and then says how many there were.

    A library may write a line with its traceback for each connection that somebody opens. Lines are of one kind where
    the same place writes the same words, whatever it puts into them.
    """

    def __init__(self, few: int = 5, period: float = 60.0, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._few = few
        self._period = period
        self._clock = clock
        self._kinds: dict[tuple[str, int, str], tuple[float, int]] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether a line is to be written; the first after a period says how many were not."""
        kind = (record.name, record.lineno, str(record.msg)[:_WORDS])
        now = self._clock()
        begun, count = self._kinds.get(kind, (now, 0))
        if now - begun >= self._period:
            if count > self._few:
                record.msg = f"{record.msg} ({count - self._few} more lines like this one in the last period)"
            begun, count = now, 0
        if kind not in self._kinds and len(self._kinds) >= _KINDS:
            self._kinds.clear()
        self._kinds[kind] = (begun, count + 1)
        return count < self._few


def _take_over_standard_library(out: TextIO, level: int, shared: list[Processor], last: list[Processor]) -> None:
    """Libraries' own lines (asyncio, aiohttp) in the same form; below warning only when details are asked for."""
    handler = logging.StreamHandler(out)
    handler.addFilter(Repeats())
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=shared,
            processors=[structlog.stdlib.ProcessorFormatter.remove_processors_meta, *last],
        )
    )
    root = logging.getLogger()
    root.handlers = [handler]
    root.setLevel(logging.INFO if level == logging.DEBUG else logging.WARNING)
