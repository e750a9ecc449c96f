"""The available plugins and actions: built-in ones, and those of installed distributions.

A module of ``vcd.scheduling.plugins`` (``.actions``) defines one `Plugin` (`Action`) with the module's name, with
hyphens for underscores; a module whose name begins with an underscore is shared code. A distribution offers one by an
entry point in the group ``vcd.plugins`` (``vcd.actions``). There is no other list of plugins.
"""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import logging
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache, cached_property, lru_cache, partial
from types import MappingProxyType, ModuleType
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, TypeVar

from vcd.model.events import Waiting
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object
from vcd.scheduling.framework.action import Action
from vcd.scheduling.framework.arguments import Argument, ArgumentValues, format_duration, read_arguments
from vcd.scheduling.framework.arguments import Kind as ArgumentKind
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import FLAGS
from vcd.scheduling.framework.policy import Policy
from vcd.scheduling.framework.quotas import QueueLimit, Quota

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

_log = logging.getLogger(__name__)

PLUGIN_GROUP = "vcd.plugins"
ACTION_GROUP = "vcd.actions"

ALWAYS_READ = ("Pod", "Node", "PodGroup", "Queue", "PriorityClass", "Namespace")
"""Kinds that are read whatever plugins are active."""


class Extension(Protocol):
    """What the registry requires of a plugin's or an action's class."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]]
    kinds: ClassVar[tuple[str | Kind, ...]]


E = TypeVar("E", bound=Extension)


class RegistryError(Exception):
    """A plugin or action that cannot be used; the message names its module or entry point."""


@cache
def plugins() -> Extensions[Plugin]:
    """Return every plugin's class by name, sorted by name. Built-in ones are imported on first access.

    Raises RegistryError if an entry point, or the requested module, does not contain a valid plugin.
    """
    return Extensions(Plugin, importlib.import_module("vcd.scheduling.plugins"), partial(_entry_points, PLUGIN_GROUP))


@cache
def actions() -> Extensions[Action]:
    """Return every action's class by name, sorted by name; as `plugins`."""
    return Extensions(Action, importlib.import_module("vcd.scheduling.actions"), partial(_entry_points, ACTION_GROUP))


def _entry_points(group: str) -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points  # slower than importing most plugins

    return entry_points(group=group)


@cache
def distributions() -> Mapping[str, str]:
    """Return the versions of the installed distributions that offer plugins or actions, by name."""
    found = [entry_point.dist for group in (PLUGIN_GROUP, ACTION_GROUP) for entry_point in _entry_points(group)]
    return MappingProxyType({dist.name: dist.version for dist in found if dist is not None})


class Extensions(Mapping[str, type[E]]):
    """Subclasses of ``base`` by name: modules of a package, imported on first access, and entry points.

    Entry points are loaded if a name is not in the package, or all names are requested. Raises RegistryError for a
    module that defines no such class, several, or one with another name; and for an entry point that does not load,
    refers to no such class, has a name that differs from the class's, or has a name that is taken.
    """

    def __init__(
        self, base: type[E], package: ModuleType, find_entry_points: Callable[[], Iterable[EntryPoint]]
    ) -> None:
        modules = [module.name for module in pkgutil.iter_modules(package.__path__)]
        self._base = base
        self._modules = {
            name.replace("_", "-"): f"{package.__name__}.{name}" for name in modules if not name.startswith("_")
        }
        self._find_entry_points = find_entry_points
        self._imported: dict[str, type[E]] = {}

    @cached_property
    def _third_party(self) -> dict[str, type[E]]:
        found: dict[str, type[E]] = {}
        sources = {name: f"module {path}" for name, path in self._modules.items()}
        entry_points = sorted(self._find_entry_points(), key=lambda item: (item.name, item.value))
        if entry_points:  # built-in first, so that a duplicate reason code fails in the third-party module
            plugins().import_modules()
            actions().import_modules()
        for entry_point in entry_points:
            name, source = entry_point.name, f"entry point {entry_point.name} = {entry_point.value}"
            if name in sources:
                raise RegistryError(f"{source}: the name {name} is taken by {sources[name]}")
            found[name], sources[name] = _load(self._base, entry_point), source
        return found

    def __getitem__(self, name: str) -> type[E]:
        if not name:
            raise KeyError(name)
        if name not in self._modules:
            return self._third_party[name]
        if name not in self._imported:
            self._imported[name] = _only_class(self._base, name, importlib.import_module(self._modules[name]))
        return self._imported[name]

    def import_modules(self) -> None:
        """Import all modules of the package."""
        for path in self._modules.values():
            importlib.import_module(path)

    def __contains__(self, name: object) -> bool:
        return name in self._modules or name in self._third_party

    def __iter__(self) -> Iterator[str]:
        return iter(sorted([*self._modules, *self._third_party]))

    def __len__(self) -> int:
        return len(self._modules) + len(self._third_party)


def _only_class(base: type[E], name: str, module: ModuleType) -> type[E]:
    """Return the one subclass of ``base`` that ``module``, or a module below it, defines, and that has this name."""
    classes = [
        value
        for value in vars(module).values()
        if inspect.isclass(value)
        and issubclass(value, base)
        and f"{value.__module__}.".startswith(f"{module.__name__}.")
    ]
    if len(classes) != 1:
        names = ", ".join(value.__name__ for value in classes) or "none"
        raise RegistryError(f"module {module.__name__}: it must define one {base.__name__}, and defines {names}")
    if getattr(classes[0], "name", None) != name:
        raise RegistryError(f"module {module.__name__}: its class {classes[0].__name__} must have the name {name}")
    return classes[0]


def _load(base: type[E], entry_point: EntryPoint) -> type[E]:
    source = f"entry point {entry_point.name} = {entry_point.value}"
    try:
        loaded = entry_point.load()
    except Exception as error:  # third-party modules may raise anything on import
        raise RegistryError(f"{source}: it does not load: {type(error).__name__}: {error}") from error
    if not inspect.isclass(loaded) or not issubclass(loaded, base):
        raise RegistryError(f"{source}: it is no {base.__name__}")
    if getattr(loaded, "name", None) != entry_point.name:
        raise RegistryError(f"{source}: its class {loaded.__name__} must have the name {entry_point.name}")
    wrong = _wrong_declaration(loaded)
    if wrong:
        raise RegistryError(f"{source}: {loaded.__name__}.{wrong}")
    return loaded


def _is_pair(value: Any) -> bool:
    return isinstance(value, tuple) and [type(part) for part in value] == [str, str]


_TUPLES: dict[str, tuple[Callable[[Any], bool], str]] = {
    "arguments": (lambda each: isinstance(each, Argument), "Arguments"),
    "kinds": (lambda each: isinstance(each, str | Kind), "texts and Kinds"),
    "outside": (lambda each: isinstance(each, str), "texts"),
    "quotas": (lambda each: isinstance(each, Quota), "Quotas"),
    "keys": (lambda each: isinstance(each, str), "texts"),
    "series": (_is_pair, "pairs of texts"),
    "excludes": (lambda each: _is_pair(each) and each[0] in FLAGS, "pairs of an enable flag and a plugin"),
}
"""Declarations that are tuples: a check for their items, and words for an error."""


def _wrong_declaration(extension: type) -> str:
    """Return what is wrong with the declarations of a third-party class, in words; empty if they are valid."""
    for name, (is_one, words) in _TUPLES.items():
        given = getattr(extension, name, ())
        if not isinstance(given, tuple) or not all(map(is_one, given)):
            return f"{name} is not a tuple of {words}"
    arguments: tuple[Argument, ...] = getattr(extension, "arguments", ())
    for kind in getattr(extension, "kinds", ()):
        wrong = _wrong_kind(kind, {argument.key for argument in arguments if argument.kind == "str"})
        if wrong:
            return f"kinds {wrong}"
    switches = [argument.key for argument in arguments if argument.kind == "bool"]
    if getattr(extension, "timed", False) not in (True, False, *switches):
        return "timed is neither True nor False nor the key of a switch"
    if getattr(extension, "bind_timeout", "") not in ("", *[argument.key for argument in arguments]):
        return "bind_timeout is not a key of its arguments"
    for name in ("protects", "limits_zero"):
        if not isinstance(getattr(extension, name, False), bool):
            return f"{name} is neither True nor False"
    return ""


def _wrong_kind(kind: str | Kind, arguments: set[str]) -> str:
    """Return what is wrong with a third-party declaration of a kind, in words; empty if it is valid."""
    if isinstance(kind, str):
        return "" if kind in KINDS else f"names {kind}, which is none of {', '.join(sorted(KINDS))}"
    if not inspect.isclass(kind.type) or not issubclass(kind.type, Object):
        return f"declares {kind.name} without a type that is an Object of vcd.model.objects"
    if kind.namespace and not kind.namespaced:
        return f"declares {kind.name} in a namespace, and not as namespaced"
    unknown = [key for key in kind.argument_keys() if key not in arguments]
    return f"declares {kind.name} by {unknown[0]}, which is not an argument of kind str" if unknown else ""


def kinds() -> Mapping[str, Kind]:
    """Return every kind that vcd, a plugin or an action can read, by name, without restriction to a namespace or
    object.

    Raises RegistryError if two declare different kinds under one name, because the log could not distinguish them.
    """
    return _kinds((*plugins().values(), *actions().values()))


@lru_cache(maxsize=1)
def _kinds(extensions: tuple[type[Extension], ...]) -> Mapping[str, Kind]:
    declared: dict[str, tuple[Kind, str]] = {name: (kind, "vcd") for name, kind in KINDS.items()}
    for extension in extensions:
        for kind in extension.kinds:
            if isinstance(kind, Kind) and declared.setdefault(kind.name, (kind, extension.name))[0] != kind:
                raise RegistryError(
                    f"{extension.name} declares the kind {kind.name} otherwise than {declared[kind.name][1]} does;"
                    f" give it a name of its own, with manifest={kind.manifest_kind!r}"
                )
    found = {name: dataclasses.replace(kind, namespace="", object="") for name, (kind, _) in declared.items()}
    return MappingProxyType(found)


def kinds_read(policy: Policy) -> list[Kind]:
    """Return the kinds that a policy reads: those that are always read, and those that its plugins and actions declare.

    If a plugin has two entries, the first one's arguments determine which objects of its own kinds are read.
    """
    known = kinds()
    found = {name: known[name] for name in ALWAYS_READ}
    named: list[tuple[type[Extension], Mapping[str, Any] | None]] = [
        *((plugins()[option.name], option.arguments) for tier in policy.tiers for option in tier),
        *((actions()[name], policy.configurations.get(name)) for name in policy.actions),
    ]
    for extension, given in named:
        values, _ = read_arguments(extension.arguments, given)
        for kind in extension.kinds:
            read = kind.with_arguments(values) if isinstance(kind, Kind) else known[kind]
            found.setdefault(read.name, read)
    return list(found.values())


def is_timed(policy: Policy) -> bool:
    """Return whether answers of an active plugin can change with time alone."""
    return any(_is_timed(plugins()[option.name], option.arguments) for tier in policy.tiers for option in tier)


def _is_timed(plugin: type[Plugin], given: Mapping[str, Any]) -> bool:
    if isinstance(plugin.timed, str):
        return bool(read_arguments(plugin.arguments, given)[0][plugin.timed])
    return plugin.timed


def bind_timeout(policy: Policy) -> float | None:
    """Return the seconds that a bind may wait for volumes; None without a plugin that chooses volumes."""
    for option in [option for tier in policy.tiers for option in tier]:
        plugin = plugins()[option.name]
        if plugin.bind_timeout:
            return float(read_arguments(plugin.arguments, option.arguments)[0][plugin.bind_timeout])
    return None


def series() -> Mapping[str, str]:
    """Return name and meaning of the gauges that only one plugin exposes."""
    return {name: meaning for plugin in plugins().values() for name, meaning in plugin.series}


def limits_of(reason: Waiting) -> list[QueueLimit]:
    """Return the limits that a reason is about, as its plugin reads them; empty, and logged, if the plugin fails."""
    try:
        return list(plugins().get(reason.plugin, Plugin).limits_of_reason(reason))
    except Exception as error:  # noqa: BLE001 - a third-party defect: the reason itself is still displayed
        _log.warning("plugin %s cannot read the limits in its own reason %r: %r", reason.plugin, reason.reason, error)
        return []


def describe_policy(policy: Policy) -> dict[str, Any]:
    """Return a policy as data for JSON: each argument's value and whether it is the default.

    ``flags`` of a plugin has only those that differ from the default. Durations are as in a file: ``1h30m``.
    """
    return {
        "digest": policy.digest,
        "actions": [
            {"name": name, "arguments": _describe_arguments(actions()[name].arguments, policy.configurations.get(name))}
            for name in policy.actions
        ],
        "tiers": [
            [
                {
                    "name": option.name,
                    "flags": {flag: on for flag, on in option.enabled.items() if on != FLAGS[flag]},
                    "arguments": _describe_arguments(plugins()[option.name].arguments, option.arguments),
                }
                for option in tier
            ]
            for tier in policy.tiers
        ],
        "metrics": dict(policy.metrics),
        "warnings": [str(warning) for warning in policy.warnings],
    }


def _describe_arguments(declared: tuple[Argument, ...], raw: Mapping[str, Any] | None) -> dict[str, dict[str, Any]]:
    values, _ = read_arguments(declared, raw)
    return {
        key: {"value": _plain(value, values.declaration(key).kind), "default": key not in values.given}
        for key, value in values.items()
    }


def _plain(value: Any, kind: ArgumentKind | None = None) -> Any:
    if kind == "duration" and value is not None:
        return format_duration(value)
    if isinstance(value, ArgumentValues):
        return {key: _plain(item, value.declaration(key).kind) for key, item in value.items()}
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(item) for item in value]
    return value if value is None or isinstance(value, bool | int | float) else str(value)
