"""The policy of a cycle: the actions and their order, the tiers of plugins, and their arguments.

`parse_policy` reads the same file as vc-scheduler (Volcano ``pkg/scheduler/conf/scheduler_conf.go`` and
``pkg/scheduler/util.go``). What Volcano refuses is refused. What Volcano ignores silently (an unknown key, a value of
the wrong type, a plugin that does not exist) is reported with its line: as a warning if the rest still means what its
author wrote, otherwise as an error.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, Protocol

import msgspec
import yaml

from vcd.model.kinds import Kind
from vcd.model.wording import did_you_mean
from vcd.scheduling.framework.arguments import (
    Argument,
    ArgumentError,
    ArgumentValues,
    Path,
    in_words,
    read_arguments,
)
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.points import FLAGS, IDLE_FLAGS, Point
from vcd.scheduling.framework.policy_conflicts import Configured, ConfiguredPlugin, misfits
from vcd.state.interning import Computed

DEFAULT_POLICY: Final = """\
actions: "enqueue, allocate, backfill"
tiers:
- plugins:
  - name: priority
  - name: gang
  - name: conformance
- plugins:
  - name: overcommit
  - name: drf
  - name: predicates
  - name: proportion
  - name: nodeorder
"""
"""The policy without a file: vc-scheduler's compiled-in default."""

LARGEST_FILE: Final = 1 << 20
"""Most characters of a configuration; a ConfigMap holds as many bytes."""
_MOST_VALUES = 100_000
"""Most values of a file after aliases are expanded."""
_MOST_CHARACTERS = 200
"""Characters of a value that a problem contains."""

METRICS: Final = (
    Argument(
        "type",
        "str",
        "prometheus",
        "The source of samples.",
        choices=("prometheus", "prometheus_adaptor", "prometheus_adapt", "elasticsearch", "metrics_server"),
    ),
    Argument("address", "url", "", "The URL of Prometheus or Elasticsearch, which both need."),
    Argument("interval", "duration", 30 * 10**9, "The time between two samples.", minimum=1),
    Argument("timeout", "duration", 60 * 10**9, "The longest time for taking one sample. Not in Volcano.", minimum=1),
    Argument("elasticsearch.index", "str", "metricbeat-*", "The index with Metricbeat's measurements."),
    Argument("elasticsearch.username", "str", "", "The user, unless the address contains one."),
    Argument("elasticsearch.password", "str", "", "The password, unless the address contains one."),
    Argument("elasticsearch.hostnameFieldName", "str", "host.hostname", "The field with a node's name."),
    Argument("tls.insecureSkipVerify", "bool", False, "Whether any certificate of the server is accepted."),
)
"""The section ``metrics``: the source of samples of the nodes' usage. All its values are texts."""

_ADDRESSED: Final = ("prometheus", "elasticsearch")
"""Sources that need an address."""

_ROOT_KEYS = ("actions", "tiers", "configurations", "metrics")
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")
_FLAG_PREFIX = re.compile(r"enabled?(?=[A-Z])")


@dataclass(frozen=True)
class Problem:
    """A fault in a configuration file: the 1-based ``line``, the ``key`` (a path), and the ``value`` as written."""

    line: int
    key: str
    value: str
    message: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.sentence}"

    @property
    def sentence(self) -> str:
        """The present ones of ``key: "value": message``, on one line."""
        parts = (self.key, self.value and f'"{self.value}"', self.message)
        return " ".join(": ".join(part for part in parts if part).split())


class PolicyError(ValueError):
    """A configuration that cannot be used: its ``problems`` and its ``warnings``, each in the order of lines."""

    def __init__(self, problems: tuple[Problem, ...], warnings: tuple[Problem, ...] = ()) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = problems
        self.warnings = warnings


class PluginOption(msgspec.Struct, frozen=True):
    """One plugin of a tier: ``enabled`` has every enable flag, ``arguments`` the file's validated values."""

    name: str
    enabled: Mapping[str, bool]
    arguments: Mapping[str, Any]

    def is_on(self, point: Point[..., Any]) -> bool:
        """Return whether the plugin's flags let it take part in ``point``."""
        return not point.flag or self.enabled.get(point.flag, True)


@dataclass(frozen=True)
class Policy:
    """A valid configuration.

    ``actions`` in the order in which they run; ``tiers`` of plugins; ``configurations`` are raw arguments of actions,
    by name; ``metrics`` is the source of usage; ``text`` is the file as read, ``digest`` its BLAKE2b hash in hex;
    ``warnings`` are parts of the file without effect; ``misfits`` are combinations that cannot work.
    """

    actions: tuple[str, ...]
    tiers: tuple[tuple[PluginOption, ...], ...]
    configurations: Mapping[str, Mapping[str, Any]]
    metrics: Mapping[str, str]
    text: str
    digest: str
    warnings: tuple[Problem, ...]
    misfits: tuple[Problem, ...] = ()
    cached: Computed = field(init=False, default_factory=Computed, compare=False, repr=False)
    """Cache of values that depend on this policy only."""

    def values(self, name: str, declared: tuple[Argument, ...], given: Mapping[str, Any] | None) -> ArgumentValues:
        """Return the arguments that a plugin or action declares, with this policy's values (``given`` is None without
        an entry).

        Errors were reported when the policy was parsed.
        """
        return self.cached((name, id(given)), lambda: read_arguments(declared, given)[0])


class Declares(Protocol):
    """A class that declares arguments."""

    @property
    def arguments(self) -> tuple[Argument, ...]: ...


TrialCycle = Callable[[Policy], Mapping[str, str]]
"""Runs a cycle under a policy, and returns the failures by plugin (an empty name for others)."""


def parse_policy(
    text: str | None,
    *,
    actions: Mapping[str, Declares],
    plugins: Mapping[str, type[Plugin]],
    trial: TrialCycle = lambda _: {},
    logged: bool = False,
) -> Policy:
    """Return the policy in ``text`` (None: the default), validated against the available ``actions`` and ``plugins``.

    ``trial`` runs on a policy without other errors. Raises PolicyError with all problems, and nothing else. A
    ``logged`` policy was in force before and stays readable: where a value is not allowed any more, its default is
    used, as in that session, with a warning.
    """
    text = DEFAULT_POLICY if text is None else text
    reader = _Reader(text, actions, plugins, logged)
    policy = None
    try:
        policy = reader.policy()
        if not reader.errors and not logged:
            reader.try_out(policy, trial)
    except yaml.YAMLError as error:
        reader.errors.append(_syntax_problem(error, text))
    except RecursionError:
        reader.errors.append(Problem(1, "", "", "nested too deeply"))
    except Exception as error:  # noqa: BLE001 - a file must never end a running program
        reader.errors.append(Problem(1, "", "", f"cannot be used: {error!r}"))
    if reader.errors or policy is None:
        raise PolicyError(_by_line(reader.errors), _by_line(reader.warnings))
    return policy


def digest_of(text: str) -> str:
    """Return the identity of a configuration's text: its BLAKE2b hash, in hex."""
    return hashlib.blake2b(text.encode()).hexdigest()


def _count_expanded(node: yaml.Node | None, known: dict[int, int]) -> int:
    """Return how many values a node has with its aliases expanded: a short text may expand to billions."""
    if not isinstance(node, yaml.CollectionNode):
        return 1
    if id(node) not in known:
        known[id(node)] = 1  # for a node that contains itself
        pairs = [part for pair in node.value for part in pair] if isinstance(node, yaml.MappingNode) else node.value
        known[id(node)] = 1 + sum(_count_expanded(part, known) for part in pairs)
    return known[id(node)]


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        words = " ".join(word for word in (error.context, error.problem) if word)
        return Problem(mark.line + 1 if mark else 1, "", "", f"not YAML: {words}")
    if isinstance(error, yaml.reader.ReaderError):
        line = text.count("\n", 0, error.position) + 1
        return Problem(line, "", "", f"not YAML: it holds {text[error.position]!r}, which YAML does not allow")
    return Problem(1, "", "", f"not YAML: {error}")


def names_source(metrics: Mapping[str, str]) -> bool:
    """Return whether the section ``metrics`` states where samples of the nodes' usage come from."""
    return bool(metrics.get("type") or metrics.get("address"))


def _by_line(problems: Iterable[Problem]) -> tuple[Problem, ...]:
    return tuple(sorted(problems, key=lambda problem: problem.line))


def _line(node: yaml.Node | None) -> int:
    return node.start_mark.line + 1 if node else 1


@dataclass(eq=False)
class _Reader:
    """One pass over a file's YAML nodes, which have line numbers, that collects errors and warnings."""

    text: str
    actions: Mapping[str, Declares]
    plugins: Mapping[str, type[Plugin]]
    logged: bool
    errors: list[Problem] = field(default_factory=list)
    warnings: list[Problem] = field(default_factory=list)
    _entries: dict[str, tuple[yaml.Node, str]] = field(default_factory=dict)
    """For each plugin, the node of its name and the path of its entry."""

    def try_out(self, policy: Policy, trial: TrialCycle) -> None:
        """Report the failures of a cycle under the policy, each at the entry of its plugin."""
        for name, message in trial(policy).items():
            node, path = self._entries.get(name, (None, ""))
            self._error(node, path, f"cannot be decided with: {message}")

    def policy(self) -> Policy:
        """Return the file's policy, as far as it is readable. Raises YAMLError."""
        if len(self.text) > LARGEST_FILE:
            raise yaml.YAMLError(f"it is larger than {LARGEST_FILE >> 20} MiB, which no ConfigMap holds")
        self._loader = _Loader(self.text)
        fields = self._fields(self._first_document(), "", _ROOT_KEYS)
        actions, tiers = self._action_names(fields.get("actions")), self._tiers(fields.get("tiers"))
        metrics = self._metrics(fields.get("metrics"))
        return Policy(
            actions=actions,
            tiers=tiers,
            configurations=MappingProxyType(self._configurations(fields.get("configurations"), actions)),
            metrics=MappingProxyType(metrics),
            text=self.text,
            digest=digest_of(self.text),
            warnings=_by_line(self.warnings),
            misfits=_by_line(self._misfits(fields.get("actions"), actions, tiers, metrics)),
        )

    def _misfits(
        self,
        node: yaml.Node | None,
        actions: tuple[str, ...],
        tiers: tuple[tuple[PluginOption, ...], ...],
        metrics: Mapping[str, str],
    ) -> Iterator[Problem]:
        entries = {
            option.name: ConfiguredPlugin(self.plugins[option.name], option.enabled, option.arguments)
            for tier in tiers
            for option in tier
            if option.name in self.plugins
        }
        for name, message in misfits(Configured(actions, entries, self.plugins, names_source(metrics))):
            where, path = self._entries[name] if name else (node, "actions")
            yield Problem(_line(where), path, name, message)

    def _first_document(self) -> yaml.Node | None:
        """Return the root of the first document, the only one that vc-scheduler reads; None if there is none."""
        loader = self._loader
        root = loader.get_node() if loader.check_node() else None
        if _count_expanded(root, {}) > _MOST_VALUES:
            raise yaml.MarkedYAMLError(None, None, f"its aliases stand for more than {_MOST_VALUES} values", None)
        if loader.check_node():
            self._warn(loader.get_node(), "", "only the first document of the file is read")
        return root

    def _error(
        self, node: yaml.Node | None, key: str, message: str, *, value: str | None = None, harmless: bool = False
    ) -> None:
        """Append an error; a warning if it is ``harmless``. ``value`` replaces the node's own value."""
        if value is None:
            value = str(node.value) if isinstance(node, yaml.ScalarNode) else ""
        value = value if len(value) <= _MOST_CHARACTERS else f"{value[:_MOST_CHARACTERS]}..."
        (self.warnings if harmless else self.errors).append(Problem(_line(node), key, value, message))

    def _warn(self, node: yaml.Node | None, key: str, message: str) -> None:
        self._error(node, key, message, value="", harmless=True)

    # the file's parts ---------------------------------------------------------------------------------------------

    def _action_names(self, node: yaml.Node | None) -> tuple[str, ...]:
        if node is None or _is_null(node):
            self._error(node, "actions", "missing: names of actions with commas between them")
            return ()
        names = tuple(name.strip() for name in self._text(node, "actions").split(","))
        for name in names:
            if name:
                self._check_name(node, "actions", "action", name, self.actions)
            elif isinstance(node, yaml.ScalarNode):
                self._error(node, "actions", "an action without a name: write names with a comma between two")
        return names

    def _tiers(self, node: yaml.Node | None) -> tuple[tuple[PluginOption, ...], ...]:
        tiers = []
        for index, item in enumerate(self._items(node, "tiers")):
            path = f"tiers[{index}]"
            nodes = self._items(self._fields(item, path, ("plugins",)).get("plugins"), f"{path}.plugins")
            named = [self._plugin(plugin, f"{path}.plugins[{position}]") for position, plugin in enumerate(nodes)]
            for position, option in enumerate(named):
                plugin = self.plugins.get(option.name)
                for flag, other in () if plugin is None else plugin.excludes:
                    if option.enabled[flag] and other in [each.name for each in named]:
                        message = f"true excludes the plugin {other}, which is in the same tier"
                        self._error(nodes[position], f"{path}.plugins[{position}].{flag}", message)
            tiers.append(tuple(named))
        if not any(tiers):
            self._warn(node, "tiers", "no plugin is on")
        return tuple(tiers)

    def _plugin(self, node: yaml.Node, path: str) -> PluginOption:
        fields = self._fields(node, path, ("name", "arguments", *FLAGS))
        name = self._name(node, fields, path, "plugin")
        if name:
            self._check_name(fields["name"], f"{path}.name", "plugin", name, self.plugins)
            if name in self._entries:
                first = _line(self._entries[name][0])
                self._error(fields["name"], f"{path}.name", f"is already on line {first}")
            self._entries.setdefault(name, (fields["name"], path))
        enabled = {
            flag: self._flag(fields[flag], f"{path}.{flag}", default) if flag in fields else default
            for flag, default in FLAGS.items()
        }
        where, at = fields.get("arguments"), f"{path}.arguments"
        plugin = self.plugins.get(name)
        arguments, values = self._arguments(where, at, None if plugin is None else plugin.arguments, node)
        if plugin is not None and values is not None:
            try:
                _check_constructor(plugin, values)
            except ArgumentError as error:
                found = self._locate(where, error.path) or where or node
                self._error(found, f"{at}.{error.key}", f"must be {error.allowed}{error.hint}", value="")
        for flag in fields:
            if flag in IDLE_FLAGS:
                self._warn(fields[flag], path, f"{flag} has no effect: {IDLE_FLAGS[flag]}")
        return PluginOption(name, MappingProxyType(enabled), arguments)

    def _configurations(self, node: yaml.Node | None, listed: tuple[str, ...]) -> dict[str, Mapping[str, Any]]:
        found: dict[str, Mapping[str, Any]] = {}
        for index, item in enumerate(self._items(node, "configurations")):
            path = f"configurations[{index}]"
            fields = self._fields(item, path, ("name", "arguments"))
            name = self._name(item, fields, path, "action")
            if name:
                self._check_name(fields["name"], f"{path}.name", "action", name, self.actions)
            declared = self.actions[name].arguments if name in self.actions else None
            arguments, _ = self._arguments(fields.get("arguments"), f"{path}.arguments", declared, item)
            if name and name in found:
                self._warn(fields["name"], path, f"{name} is configured before; only the first one is read")
            elif name in self.actions and name not in listed:
                self._warn(fields["name"], path, f"has no effect: {name} is not among the actions")
            found.setdefault(name, arguments)
        return found

    def _metrics(self, node: yaml.Node | None) -> dict[str, str]:
        values: dict[str, str] = {}
        for key, (_, value) in self._pairs(node, "metrics").items():
            if isinstance(value, yaml.ScalarNode):
                values[key] = str(value.value)
            else:
                self._error(value, f"metrics.{key}", "must be a text")
        given = {key: text for key, text in values.items() if text}
        _, errors = self._validate(node, "metrics", METRICS, given, node)
        self._check_source(node, given)
        return {key: text for key, text in values.items() if key not in errors}

    def _check_source(self, node: yaml.Node | None, given: Mapping[str, str]) -> None:
        """Warn about a source of usage samples without an address. Sources behind the API server need none."""
        if given and not names_source(given):
            self._warn(node, "metrics", "has no effect: neither type nor address says where samples come from")
        kind = given.get("type", "prometheus")
        if "type" in given and "address" not in given and kind in _ADDRESSED:
            message = f"missing: no sample is ever taken without the URL of {kind}"
            found = self._locate(node, ("type",))
            self._warn(found, "metrics.address", message)

    def _arguments(
        self, node: yaml.Node | None, path: str, declared: tuple[Argument, ...] | None, owner: yaml.Node
    ) -> tuple[Mapping[str, Any], ArgumentValues | None]:
        """Return the file's arguments and their typed values; None if they are wrong, or no plugin declares them."""
        raw = {key: self._value(value) for key, (_, value) in self._pairs(node, path).items()}
        if declared is None:
            return MappingProxyType(raw), None
        values, wrong = self._validate(node, path, declared, raw, owner)
        return MappingProxyType(raw), None if wrong and not self.logged else values

    def _validate(
        self,
        node: yaml.Node | None,
        path: str,
        declared: tuple[Argument, ...],
        raw: Mapping[str, Any],
        owner: yaml.Node | None,
    ) -> tuple[ArgumentValues, frozenset[str | int]]:
        """Report all errors in arguments; return their values, and the top-level keys with errors."""
        values, errors = read_arguments(declared, raw)
        for notice in values.notices:
            *parents, last = notice.path
            found = self._locate(node, notice.path, key=True)
            self._warn(found or node, f"{path}.{in_words(tuple(parents))}".rstrip("."), f"{last}{notice.message}")
        for error in errors:
            found = self._locate(node, error.path) or node or owner
            message = f"must be {error.allowed}{error.hint}" + ("; the default holds" if self.logged else "")
            value = error.value if isinstance(error.value, str) else None
            self._error(found, f"{path}.{error.key}", message, value=value, harmless=self.logged)
        return values, frozenset(error.path[0] for error in errors)

    def _locate(self, node: yaml.Node | None, path: Path, *, key: bool = False) -> yaml.Node | None:
        """Return the node at the end of a path from ``node``, or that of its key; None if there is none."""
        for place, part in enumerate(path):
            if isinstance(node, yaml.SequenceNode) and isinstance(part, int) and part < len(node.value):
                node = node.value[part]
                continue
            pairs = node.value if isinstance(node, yaml.MappingNode) else []
            found = next((pair for pair in reversed(pairs) if pair[0].value == part), None)
            if found is None:
                return None
            node = found[0] if key and place == len(path) - 1 else found[1]
        return node

    # names and scalars --------------------------------------------------------------------------------------------

    def _name(self, node: yaml.Node, fields: Mapping[str, yaml.Node], path: str, what: str) -> str:
        name = fields.get("name")
        if name is not None and not _is_null(name):
            written = self._text(name, f"{path}.name")
            if written or not isinstance(name, yaml.ScalarNode):
                return written
        if isinstance(node, yaml.MappingNode) or _is_null(node):
            self._error(node, path, f"the {what} has no name")
        return ""

    def _check_name(self, node: yaml.Node, path: str, what: str, name: str, present: Iterable[str]) -> None:
        if name in present:
            return
        bare = name.strip()
        if bare in present:
            message = f"must be {bare}, without a space or line break beside it"
        else:
            message = f"there is no {what} {name}{did_you_mean(name, sorted(present))}"
        self._error(node, path, message)

    def _text(self, node: yaml.Node, path: str) -> str:
        if isinstance(node, yaml.ScalarNode):
            return str(node.value)
        self._error(node, path, "must be a text")
        return ""

    def _flag(self, node: yaml.Node, path: str, default: bool) -> bool:
        value = self._value(node)
        if isinstance(value, bool):
            return value
        if value is not None:
            self._error(node, path, "must be true or false, without quotes")
        return default

    def _value(self, node: yaml.Node) -> Any:
        try:
            return self._loader.construct_object(node, deep=True)
        except (ValueError, KeyError, AttributeError) as error:  # by PyYAML, if a value does not fit its tag
            raise yaml.constructor.ConstructorError(None, None, f"no {node.tag}", node.start_mark) from error

    # mappings and lists -------------------------------------------------------------------------------------------

    def _fields(self, node: yaml.Node | None, path: str, known: tuple[str, ...]) -> dict[str, yaml.Node]:
        """Return the fields of a mapping that are read, and warn about the others."""
        fields: dict[str, yaml.Node] = {}
        for key, (key_node, value) in self._pairs(node, path).items():
            if key in known:
                fields[key] = value
            else:
                self._warn(key_node, path, f"{key} is not read{_suggest_key(key, known)}")
        return fields

    def _pairs(self, node: yaml.Node | None, path: str) -> dict[str, tuple[yaml.Node, yaml.Node]]:
        """Return a mapping's keys with the nodes of key and value; the last of repeated keys counts, as in Volcano."""
        what = "must be a mapping" if path else "the file must be a mapping"
        begins = node.start_mark.index if node else 0
        pairs: dict[str, tuple[yaml.Node, yaml.Node]] = {}
        for key_node, value in self._content(node, path, yaml.MappingNode, what):
            if not isinstance(key_node, yaml.ScalarNode):
                self._error(key_node, path, "a key must be a text")
                continue
            key = str(key_node.value)
            # Merged keys (<<) come first, and may be overridden.
            if key in pairs and pairs[key][0].start_mark.index >= begins:
                self._warn(key_node, path, f"{key} is given twice; only the last one is read")
            pairs[key] = (key_node, value)
        return pairs

    def _content(self, node: yaml.Node | None, path: str, of: type[yaml.CollectionNode], what: str) -> list[Any]:
        """Return the items of a list or mapping; empty without a value, or after an error for another type."""
        if node is None or _is_null(node):
            return []
        if not isinstance(node, of):
            self._error(node, path, what)
            return []
        if isinstance(node, yaml.MappingNode):
            self._loader.flatten_mapping(node)
        return list(node.value)

    def _items(self, node: yaml.Node | None, path: str) -> list[yaml.Node]:
        return self._content(node, path, yaml.SequenceNode, "must be a list")


def _check_constructor(plugin: type[Plugin], values: ArgumentValues) -> None:
    """Construct the plugin, as each session will, and check the names in its kinds. Raises ArgumentError."""
    for kind in plugin.kinds:
        for key in kind.argument_keys() if isinstance(kind, Kind) else ():
            if not _OBJECT_NAME.fullmatch(values[key]):
                raise ArgumentError(key, values[key], "a name: lower-case letters, digits, - and .")
    try:
        plugin(values)
    except ArgumentError:
        raise
    except Exception:  # noqa: BLE001 - a third-party defect: each session leaves the plugin out and reports it
        return


def _is_null(node: yaml.Node) -> bool:
    return bool(node.tag == "tag:yaml.org,2002:null")


def _suggest_key(key: str, known: tuple[str, ...]) -> str:
    """Return a hint with the correct spelling: some of Volcano's flags begin with enable, others with enabled."""
    bare = _FLAG_PREFIX.sub("", key)
    if bare != key:
        for flag in known:
            if _FLAG_PREFIX.sub("", flag) == bare:
                return f"; Volcano spells it {flag}"
    return did_you_mean(key, known)


class _Loader(yaml.SafeLoader):
    """PyYAML with the scalars of go-yaml v2, which vc-scheduler uses: y and n, 1e3, and neither dates nor base 60."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    bool_values = {**yaml.SafeLoader.bool_values, "y": True, "n": False}  # noqa: RUF012


for _tag, _pattern, _first in (
    ("bool", r"(?:y|Y|yes|Yes|YES|true|True|TRUE|on|On|ON|n|N|no|No|NO|false|False|FALSE|off|Off|OFF)", "yYtToOnNfF"),
    ("int", r"[-+]?(?:0b[01_]+|0x[0-9a-fA-F_]+|0[0-7_]*|[1-9][0-9_]*)", "-+0123456789"),
    ("float", r"[-+]?(?:(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?|\.(?:inf|Inf|INF))", "-+.0123456789"),
    ("float", r"\.(?:nan|NaN|NAN)", "."),
    ("null", r"(?:~|null|Null|NULL|)", ["~", "n", "N", ""]),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(rf"^{_pattern}$"), list(_first))
