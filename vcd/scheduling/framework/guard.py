"""Gates around plugins and actions whose code is not trusted: answers are validated where they enter vcd.

Built-in plugins are tested with vcd and called directly. Third-party ones may raise, return nonsense or never return,
and the cycle continues without them (`vcd.scheduling.decide`). So each of their calls passes a `Gate`. It reports the
call to a `Watch`, which may interrupt it, and attributes every error and invalid answer to the plugin
(`vcd.scheduling.framework.answer_checks` has the valid answers). If a built-in plugin fails, the session is decided
again with all plugins behind gates.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from enum import Enum, auto
from functools import cache
from typing import Any, NoReturn, Protocol, TypeVar

import numpy as np

from vcd.scheduling.framework.arguments import ArgumentValues
from vcd.scheduling.framework.plugin import CALLS, Plugin
from vcd.scheduling.session.nodes import Usage

T = TypeVar("T", bound=np.generic)
Method = Callable[..., Any]
"""A plugin's method as the framework calls it."""
Check = Callable[..., Any]
"""Receives an answer and the arguments of the call. Returns the answer in the form that the framework uses, or calls
`expected`."""
Closed = Callable[..., Any]
"""Receives the arguments of a call. Returns the most restrictive answer."""
MakeCheck = Callable[["Gate"], Check | None]
"""Returns the check of answers that pass a gate; None if nothing needs a check."""

_MOST_CHARACTERS = 200
"""Characters of an answer or an error that a fault contains."""
_BUILT_IN = "vcd."
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_ACTION = "action "
_AT_FAULT = "_at_fault"
_AT_POINT = "_at_point"


class Watch(Protocol):
    """Observes calls of untrusted plugins and actions, and may interrupt the session during one."""

    def enter(self, name: str, point: str) -> int:
        """Record that the deciding thread enters a plugin. Return how many plugins it was in before."""

    def leave(self, depth: int) -> None:
        """Record that the deciding thread returned, so that it is in ``depth`` plugins."""


class Interrupted(BaseException):
    """Raised by a Watch at the gate of a plugin or action that took too long. Plugins must not catch it."""


class InvalidAnswer(ValueError):
    """An invalid answer of a plugin: the plugin, the point, the expected answer, and the given one."""

    def __init__(self, name: str, point: str, expected: str, given: str) -> None:
        super().__init__(f"{name}, asked at {point}: expected {expected}, got {given}")
        self.in_words = f"expected {expected} at {point}, got {given}"


class Unexpected(Exception):
    """Raised by a check; `Gate.ask` converts it to InvalidAnswer."""


def is_ours(kind: type) -> bool:
    """Return whether a class is part of vcd."""
    return kind.__module__.startswith(_BUILT_IN)


def _is_called_directly(kind: type) -> bool:
    """Return whether a class is part of vcd and needs no time limit."""
    return is_ours(kind) and CALLS not in getattr(kind, "outside", ())


is_called_directly: Callable[[type], bool] = cache(_is_called_directly)


# --- faults -----------------------------------------------------------------------------------------------------------


def action_name(name: str) -> str:
    """Return the name under which faults list an action. Its prefix rules out confusion with a plugin."""
    return f"{_ACTION}{name}"


def fault(name: str, error: BaseException) -> str:
    """Return a fault as a plan records it: ``name: error``. Parts of the error that differ between runs are removed."""
    return f"{name}: {error.in_words if isinstance(error, InvalidAnswer) else _format(error)}"


def name_in(text: str) -> str:
    """Return the plugin, or ``action NAME``, that a fault is about."""
    return text.partition(": ")[0]


def _format(value: object) -> str:
    if isinstance(value, np.ndarray):
        return f"an array of {value.dtype} of shape {value.shape}"
    try:
        text = " ".join(_ADDRESS.sub("", repr(value)).split())
    except Exception:  # noqa: BLE001 - the repr of a third-party object may raise
        return f"a {type(value).__name__}"
    return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."


def expected(what: str, answer: object) -> NoReturn:
    """Raise Unexpected: the answer is not ``what`` was expected."""
    raise Unexpected(what, _format(answer))


def at_fault(error: BaseException) -> str | None:
    """Return the plugin or action to blame for an exception; None if it passed no gate.

    A third-party plugin comes before a built-in one, because built-in plugins raise an error if they get invalid
    values. Of several, the innermost gate that the exception passed decides.
    """
    gate: Gate | None = vars(error).get(_AT_FAULT)
    return None if gate is None else gate.name


def at_point(error: BaseException) -> str:
    """Return the point at which the plugin failed that is to blame for an exception."""
    point: str = vars(error).get(_AT_POINT, "")
    return point


class Failure(Enum):
    """How a plugin failed in a session."""

    UNANSWERED = auto()
    """The plugin raised an error in a call that needs an answer. It is still called."""
    BROKEN = auto()
    """The plugin raised an error in a call that only notifies it, so its own state may be wrong, or it raised a second
    error. It is not called any more."""

    @classmethod
    def of(cls, error: Exception, before: Failure | None) -> Failure:
        """Return how a plugin failed by an exception, after a failure ``before`` in the same session."""
        return cls.BROKEN if follows_session(at_point(error)) or before is not None else cls.UNANSWERED


_FOLLOWS_SESSION = frozenset(
    ("__init__", "open", "on_allocate", "on_deallocate", "job_enqueued", "pre_bind", "bind_annotations")
)
"""Points at which a plugin follows the session, or contributes to binds."""


def follows_session(point: str) -> bool:
    """Return whether a plugin follows the session at a point, or contributes to binds there."""
    return point in _FOLLOWS_SESSION


# --- gates ------------------------------------------------------------------------------------------------------------


class Gate:
    """The only way into one plugin or action.

    Answers of a ``trusted`` plugin are not checked. ``failed`` is how the plugin failed in earlier attempts at the
    session. If it fails again, or is broken, the most restrictive answer is used.
    """

    __slots__ = ("failed", "name", "trusted", "watch")

    def __init__(self, name: str, watch: Watch | None, *, trusted: bool = False, failed: Failure | None = None) -> None:
        self.name = name
        self.watch = watch
        self.trusted = trusted
        self.failed = failed

    def ask(self, point: str, check: Check | None, arguments: tuple[Any, ...], method: Method, *given: Any) -> Any:
        """Return the answer of ``method(*given)`` as ``check`` returns it; ``arguments`` are passed to the check.

        Raises InvalidAnswer, and what the method raises. Exceptions that would end the program become InvalidAnswer,
        except KeyboardInterrupt.
        """
        watch = self.watch
        depth = 0 if watch is None else watch.enter(self.name, point)
        try:
            answer = method(*given)
            return answer if check is None else check(answer, *arguments)
        except Unexpected as wrong:
            raise self._blame(InvalidAnswer(self.name, point, *wrong.args), point) from None
        except (StopIteration, StopAsyncIteration) as error:  # would end a generator of the framework
            raise self._blame(InvalidAnswer(self.name, point, "an answer", _format(error)), point) from error
        except (Interrupted, KeyboardInterrupt):
            raise
        except Exception as error:
            self._blame(error, point)
            raise
        except BaseException as error:
            raise self._blame(InvalidAnswer(self.name, point, "an answer", _format(error)), point) from error
        finally:
            if watch is not None:
                watch.leave(depth)

    def _blame(self, error: Exception, point: str) -> Exception:
        """Attribute an exception to this gate, unless an inner gate already has it (`at_fault` states the rule)."""
        inner: Gate | None = vars(error).get(_AT_FAULT)
        if inner is None or (inner.trusted and not self.trusted):
            vars(error).update({_AT_FAULT: self, _AT_POINT: point})
        return error


class GuardedMethod:
    """A plugin's method behind its gate. This object replaces the bound method."""

    __slots__ = ("__self__", "_check", "_closed", "_gate", "_method", "_name")

    def __init__(
        self,
        of: object,
        name: str,
        gate: Gate,
        check: Check | None,
        label: str = "",
        closed: Closed | None = None,
    ) -> None:
        self.__self__ = of
        self._closed = None if gate.failed is None else closed
        self._gate = gate
        self._name = label or name
        self._method = getattr(of, name)
        self._check = check

    def __call__(self, *arguments: Any) -> Any:
        failed, given = self._gate.failed, [_seal(each) for each in arguments]
        if failed is None or self._closed is None:
            return self._gate.ask(self._name, self._check, arguments, self._method, *given)
        if failed is Failure.BROKEN:
            return self._closed(*arguments)
        try:
            return self._gate.ask(self._name, self._check, arguments, self._method, *given)
        except Exception:  # noqa: BLE001 - the plan's faults name the plugin, and the restrictive answer is used
            return self._closed(*arguments)


class Guard:
    """How a session calls its plugins: built-in ones directly, others through gates with a ``watch``.

    With ``everyone``, built-in plugins have gates, too, so that an exception names its origin. ``failed`` has the
    plugins that raised in earlier attempts, by name.
    """

    def __init__(
        self, watch: Watch | None = None, *, everyone: bool = False, failed: Mapping[str, Failure] | None = None
    ) -> None:
        self.watch = watch
        self.failed = failed or {}
        self._guards_built_in = everyone

    def method(self, plugin: Plugin, name: str, check: MakeCheck | None = None, closed: Closed | None = None) -> Method:
        """Return a plugin's method as the framework calls it. ``closed`` returns the answer of a ``failed`` plugin that
        fails again."""
        gate = self._gate(type(plugin))
        method: Method = getattr(plugin, name)
        return method if gate is None else GuardedMethod(plugin, name, gate, check and check(gate), closed=closed)

    def make(self, kind: type[Plugin], arguments: ArgumentValues, flags: Mapping[str, bool]) -> Plugin:
        """Return a new instance of a plugin, with its enable flags."""

        def construct() -> Plugin:
            plugin = kind(arguments)
            plugin.flags = flags
            return plugin

        if self.failed.get(kind.name) is Failure.BROKEN:
            bare = kind.__new__(kind)  # its methods are not called; the declarations of its class are read
            Plugin.__init__(bare, arguments)
            bare.flags = flags
            return bare
        gate = self._gate(kind)
        plugin: Plugin = construct() if gate is None else gate.ask("__init__", None, (), construct)
        return plugin

    def _gate(self, kind: type[Plugin]) -> Gate | None:
        failed = self.failed.get(kind.name)
        if not is_called_directly(kind):
            return Gate(kind.name, self.watch, failed=failed)
        return (
            Gate(kind.name, None, trusted=True, failed=failed) if self._guards_built_in or failed is not None else None
        )


def _seal(value: Any) -> Any:
    """Return a value that third-party code can read and not change."""
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
