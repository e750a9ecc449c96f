"""The way into plugins and actions that are not ours: what they answer is checked where it comes in.

Ours are tested with the rest and asked directly. Those from elsewhere may raise, give nonsense or never come back, and
a cycle goes on without them (`vcd.scheduling.decide`). So each call of theirs passes a `Gate`: a `Watch` is told who
is asked, and whatever comes out but an answer that the point allows (`vcd.scheduling.framework.checks`) is theirs to
blame. Where ours fail, the session is decided again with all plugins behind gates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import cache
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from vcd.scheduling.framework.arguments import ArgumentValues
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.session.nodes import Usage

T = TypeVar("T", bound=np.generic)
Method = Callable[..., Any]
"""A plugin's method as the framework calls it."""
Check = Callable[..., Any]
"""Called with an answer and what was asked; gives the answer as the framework takes it, or calls `expected`."""
Closed = Callable[..., Any]
"""Called with a question's arguments; returns the answer that forbids."""
MakeCheck = Callable[["Gate"], Check | None]
"""Makes the check of what comes through a gate; None where nothing is to be checked."""

_SHOWN = 200
"""Characters of an answer or an error that a fault shows."""
_OURS = "vcd."
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ACTION = "action "
_AT_FAULT = "_at_fault"
_AT_POINT = "_at_point"


class Watch(Protocol):
    """Who is told when a plugin or action that is not ours is entered and left, and may interrupt the session there."""

    def enter(self, name: str, point: str) -> int:
        """The deciding thread goes into it; the number of those that it was in before."""

    def leave(self, depth: int) -> None:
        """The deciding thread comes back from it, and is in as many as ``enter`` said."""


class Interrupted(BaseException):
    """Raised by a Watch at the gate of a plugin or action that took too long; no plugin that asks it may catch it."""


class InvalidAnswer(ValueError):
    """An answer that its point does not allow: who gave it where, what was expected, and what came."""

    def __init__(self, name: str, point: str, expected: str, given: str) -> None:
        super().__init__(f"{name}, asked at {point}: expected {expected}, got {given}")
        self.in_words = f"expected {expected} at {point}, got {given}"


class Unexpected(Exception):
    """What a check raises."""


def is_ours(kind: type) -> bool:
    """Whether a class comes with vcd."""
    return kind.__module__.startswith(_OURS)


def _is_asked_directly(kind: type) -> bool:
    """Whether it comes with vcd and nobody watches over it."""
    return is_ours(kind) and not getattr(kind, "asks_outside", False)


is_asked_directly: Callable[[type], bool] = cache(_is_asked_directly)


# --- faults -----------------------------------------------------------------------------------------------------------


def action_name(name: str) -> str:
    """How faults name an action, which may be called as a plugin is."""
    return f"{_ACTION}{name}"


def fault(name: str, error: BaseException) -> str:
    """A fault as a plan has it: ``name: error``. Of an error's text it holds nothing that differs from run to run."""
    return f"{name}: {error.in_words if isinstance(error, InvalidAnswer) else _shown(error)}"


def name_in(text: str) -> str:
    """The plugin, or ``action NAME``, that a fault is about."""
    return text.partition(": ")[0]


def _shown(value: object) -> str:
    """A value as one line of a fault."""
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    try:
        text = " ".join(_ADDRESS.sub("", repr(value)).split())
    except Exception:  # noqa: BLE001 - a stranger's object may fail to tell what it is
        return f"a {type(value).__name__}"
    return text if len(text) <= _SHOWN else text[: _SHOWN - 3] + "..."


def expected(what: str, answer: object) -> NoReturn:
    """Say that an answer is not what it should be."""
    raise Unexpected(what, _shown(answer))


def at_fault(error: BaseException) -> str | None:
    """Who is to blame for an exception: the innermost plugin or action that it came from through a gate and that is
    not ours, since ours raise when they are asked nonsense; without one, the innermost. None: it passed no gate."""
    gate: Gate | None = vars(error).get(_AT_FAULT)
    return None if gate is None else gate.name


def at_point(error: BaseException) -> str:
    """The point at which the plugin failed that is to blame for an exception."""
    point: str = vars(error).get(_AT_POINT, "")
    return point


class Failure(Enum):
    """How a plugin failed in a session."""

    UNANSWERED = auto()
    """It raised where it had to answer, and is called again."""
    BROKEN = auto()
    """It raised where it keeps up with the session, or for the second time, and is not called again."""

    @classmethod
    def of(cls, error: Exception, before: Failure | None) -> Failure:
        """Return how a plugin failed by an exception, after a failure ``before`` in the same session."""
        return cls.BROKEN if keeps_up(at_point(error)) or before is not None else cls.UNANSWERED


_KEEPS_UP = frozenset(
    ("__init__", "open", "on_allocate", "on_deallocate", "on_allocate_together", "job_enqueued", "pre_bind",
     "bind_annotations")
)  # fmt: skip
"""Points at which a plugin learns of the session, or adds to what is bound."""


def keeps_up(point: str) -> bool:
    """Whether a plugin learns of the session at a point, or adds to what is bound."""
    return point in _KEEPS_UP


# --- gates ------------------------------------------------------------------------------------------------------------


class Gate:
    """The way into one plugin or action. Of one that is ``trusted`` answers are not checked. ``failed`` is how it
    failed before. It forbids where it fails again, and everywhere if it is broken."""

    __slots__ = ("failed", "name", "trusted", "watch")

    def __init__(self, name: str, watch: Watch | None, *, trusted: bool = False, failed: Failure | None = None) -> None:
        self.name = name
        self.watch = watch
        self.trusted = trusted
        self.failed = failed

    def ask(self, point: str, check: Check | None, asked: tuple[Any, ...], method: Method, *given: Any) -> Any:
        """What ``method`` answers, given ``given``, as ``check`` takes it. ``asked`` is the question for the check.

        Raises InvalidAnswer, and what the method raises; what would end the program is InvalidAnswer, too.
        """
        watch = self.watch
        depth = 0 if watch is None else watch.enter(self.name, point)
        try:
            answer = method(*given)
            return answer if check is None else check(answer, *asked)
        except Unexpected as wrong:
            raise self._blamed(InvalidAnswer(self.name, point, *wrong.args), point) from None
        except (StopIteration, StopAsyncIteration) as error:  # a generator of ours would turn it into another error
            raise self._blamed(InvalidAnswer(self.name, point, "an answer", _shown(error)), point) from error
        except (Interrupted, KeyboardInterrupt):
            raise
        except Exception as error:
            self._blamed(error, point)
            raise
        except BaseException as error:
            raise self._blamed(InvalidAnswer(self.name, point, "an answer", _shown(error)), point) from error
        finally:
            if watch is not None:
                watch.leave(depth)

    def _blamed(self, error: Exception, point: str) -> Exception:
        """Note on an exception that it came from here, unless somebody within is to blame; see `at_fault`."""
        within: Gate | None = vars(error).get(_AT_FAULT)
        if within is None or (within.trusted and not self.trusted):
            vars(error).update({_AT_FAULT: self, _AT_POINT: point})
        return error


class GuardedMethod:
    """A method of a plugin's behind its gate; it passes for the bound method that it stands for."""

    __slots__ = ("__self__", "_check", "_closed", "_gate", "_method", "_name")

    def __init__(
        self,
        of: object,
        name: str,
        gate: Gate,
        check: Check | None,
        called: str = "",
        closed: Closed | None = None,
    ) -> None:
        self.__self__ = of
        self._closed = None if gate.failed is None else closed
        self._gate = gate
        self._name = called or name
        self._method = getattr(of, name)
        self._check = check

    def __call__(self, *asked: Any) -> Any:
        failed, given = self._gate.failed, [_sealed(each) for each in asked]
        if failed is None or self._closed is None:
            return self._gate.ask(self._name, self._check, asked, self._method, *given)
        if failed is Failure.BROKEN:
            return self._closed(*asked)
        try:
            return self._gate.ask(self._name, self._check, asked, self._method, *given)
        except Exception:  # noqa: BLE001 - the plan's faults name the plugin; what it forbids stays forbidden
            return self._closed(*asked)


class Guard:
    """How a session asks its plugins: ours directly, others through gates, of which ``watch`` is told. ``everyone``:
    ours go through gates, too, so that it is known who raised. ``failed`` are plugins that raised before, by name."""

    def __init__(
        self, watch: Watch | None = None, *, everyone: bool = False, failed: Mapping[str, Failure] | None = None
    ) -> None:
        self.watch = watch
        self.failed = failed or {}
        self._everyone = everyone

    def method(self, plugin: Plugin, name: str, check: MakeCheck | None = None, closed: Closed | None = None) -> Method:
        """A plugin's method as the framework calls it. ``closed`` gives the answer where one that ``failed`` fails
        again."""
        gate = self._gate(type(plugin))
        method: Method = getattr(plugin, name)
        return method if gate is None else GuardedMethod(plugin, name, gate, check and check(gate), closed=closed)

    def make(self, kind: type[Plugin], arguments: ArgumentValues, flags: Mapping[str, bool]) -> Plugin:
        """A new instance of a plugin, with its enable flags."""

        def made() -> Plugin:
            plugin = kind(arguments)
            plugin.flags = flags
            return plugin

        if self.failed.get(kind.name) is Failure.BROKEN:
            bare = kind.__new__(kind)  # its methods are not called; what its class declares counts
            Plugin.__init__(bare, arguments)
            bare.flags = flags
            return bare
        gate = self._gate(kind)
        plugin: Plugin = made() if gate is None else gate.ask("__init__", None, (), made)
        return plugin

    def _gate(self, kind: type[Plugin]) -> Gate | None:
        failed = self.failed.get(kind.name)
        if not is_asked_directly(kind):
            return Gate(kind.name, self.watch, failed=failed)
        return Gate(kind.name, None, trusted=True, failed=failed) if self._everyone or failed is not None else None


def _sealed(value: Any) -> Any:
    """What a stranger may look at, and not change."""
    if isinstance(value, list):
        return list(value)
    if isinstance(value, np.ndarray):
        return _read_only(value)
    if isinstance(value, Usage):
        return Usage(_read_only(value.matrix), _read_only(value.allocatable), len(value.allocatable), value.rows)
    return value


def _read_only(array: np.ndarray[Any, np.dtype[T]]) -> np.ndarray[Any, np.dtype[T]]:
    view = array.view()
    view.flags.writeable = False
    return view
