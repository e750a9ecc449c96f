"""How plugins and actions are found, and what is said of one that cannot be used."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any, ClassVar

import pytest
import yaml

from vcd.model.events import Waiting
from vcd.model.kinds import KINDS, Kind
from vcd.model.objects import Object
from vcd.model.reasons import Cause, ReasonCode
from vcd.scheduling.configuration import read_policy
from vcd.scheduling.framework import registry
from vcd.scheduling.framework.arguments import Argument
from vcd.scheduling.framework.plugin import Plugin
from vcd.scheduling.framework.policy import PolicyError
from vcd.scheduling.framework.quotas import QueueLimit
from vcd.scheduling.framework.registry import (
    ALWAYS_READ,
    Extensions,
    RegistryError,
    describe_policy,
    kinds_read,
)

PARENT = "from tests.scheduling.test_registry import Parent\n"
GANG = PARENT + "class Gang(Parent):\n    name = 'gang'\n"
DRF = PARENT + "class Drf(Parent):\n    name = 'drf'\n"
MakePackage = Callable[[dict[str, str]], ModuleType]


RACK = Kind("Rack", "example.com", "v1", "racks", False, Object)
NOTES = Kind("Notes", "", "v1", "configmaps", True, Object, "<closer.where>", "notes", manifest="ConfigMap")


class Closer(Plugin):
    """Brings kinds of its own."""

    name = "closer"
    kinds = ("PodDisruptionBudget", RACK, NOTES)
    arguments = (Argument("closer.where", "str", "ops", "The namespace of the notes."),)


class Parent:
    """What the extensions of these tests are subclasses of."""

    name: ClassVar[str]
    arguments: ClassVar[tuple[Argument, ...]] = ()
    kinds: ClassVar[tuple[str | Kind, ...]] = ()


class Outside(Parent):
    """One that an entry point offers."""

    name = "outside"


@dataclass
class FakeEntryPoint:
    """An entry point that loads ``loaded``, or raises it."""

    name: str
    loaded: Any
    value: str = "some.module:Class"

    def load(self) -> Any:
        if isinstance(self.loaded, Exception):
            raise self.loaded
        return self.loaded


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> MakePackage:
    """Makes importable packages of modules, given as name -> source."""
    monkeypatch.syspath_prepend(tmp_path)
    numbers = itertools.count()

    def make(modules: dict[str, str]) -> ModuleType:
        name = f"extensions_{tmp_path.name}_{next(numbers)}"
        folder = tmp_path / name
        folder.mkdir()
        for module, source in {"__init__": "", **modules}.items():
            (folder / f"{module}.py").write_text(source)
        importlib.invalidate_caches()
        return importlib.import_module(name)

    return make


def test_modules_of_the_package_are_found_in_the_order_of_names(package: MakePackage) -> None:
    found = Extensions(Parent, package({"z_last": DRF.replace("'drf'", "'z-last'"), "gang": GANG}), list)
    assert [(name, kind.name) for name, kind in found.items()] == [("gang", "gang"), ("z-last", "z-last")]
    assert "gang" in found and "z_last" not in found and len(found) == 2


def test_module_is_imported_when_it_is_asked_for(package: MakePackage) -> None:
    found = Extensions(Parent, package({"broken": "raise RuntimeError", "gang": GANG}), list)
    assert "broken" in found and found["gang"].name == "gang"
    with pytest.raises(RuntimeError):
        found["broken"]


def test_class_that_a_module_only_imports_is_not_its_own(package: MakePackage) -> None:
    source = "from tests.scheduling.test_registry import Outside\n" + GANG
    assert list(Extensions(Parent, package({"gang": source}), list)) == ["gang"]


def test_module_with_an_underscore_is_for_what_others_share(package: MakePackage) -> None:
    assert list(Extensions(Parent, package({"_shared": "LIMIT = 1\n", "gang": GANG}), list)) == ["gang"]


def test_module_without_a_class(package: MakePackage) -> None:
    with pytest.raises(RegistryError, match=r"\.empty: it must define one Parent, and defines none"):
        Extensions(Parent, package({"empty": ""}), list)["empty"]


def test_module_with_two_classes(package: MakePackage) -> None:
    with pytest.raises(RegistryError, match="and defines Gang, Drf"):
        Extensions(Parent, package({"both": GANG + DRF}), list)["both"]


def test_class_without_a_name(package: MakePackage) -> None:
    with pytest.raises(RegistryError, match="its class Nameless must have the name nameless"):
        Extensions(Parent, package({"nameless": PARENT + "class Nameless(Parent):\n    pass\n"}), list)["nameless"]


def test_class_of_another_name_than_its_module(package: MakePackage) -> None:
    with pytest.raises(RegistryError, match=r"\.two: its class Gang must have the name two"):
        Extensions(Parent, package({"two": GANG}), list)["two"]


def test_entry_point_is_found(package: MakePackage) -> None:
    assert (
        Extensions(Parent, package({"gang": GANG}), lambda: [FakeEntryPoint("outside", Outside)])["outside"] is Outside
    )


def test_entry_point_that_does_not_load(package: MakePackage) -> None:
    broken = FakeEntryPoint("outside", ImportError("no module named wanted"))
    with pytest.raises(
        RegistryError,
        match=r"entry point outside = some\.module:Class: it does not load: ImportError: no module named wanted",
    ):
        list(Extensions(Parent, package({}), lambda: [broken]))


@pytest.mark.parametrize("loaded", [object, 5])
def test_entry_point_of_something_else(package: MakePackage, loaded: object) -> None:
    with pytest.raises(RegistryError, match=r"entry point outside = some\.module:Class: it is no Parent"):
        list(Extensions(Parent, package({}), lambda: [FakeEntryPoint("outside", loaded)]))


def test_entry_point_whose_class_has_another_name(package: MakePackage) -> None:
    with pytest.raises(RegistryError, match="its class Outside must have the name inside"):
        list(Extensions(Parent, package({}), lambda: [FakeEntryPoint("inside", Outside)]))


@pytest.mark.parametrize(
    ("declared", "told"),
    [
        ({"arguments": Argument("a", "int", 1, "a")}, "arguments is not a tuple of Arguments"),
        ({"arguments": ("a",)}, "arguments is not a tuple of Arguments"),
        ({"kinds": "Namespace"}, "kinds is not a tuple of texts"),
        ({"kinds": ("Namespace", "Nonsense")}, "kinds names Nonsense, which is none of .*Namespace"),
        (
            {"kinds": (Kind("Rack", "x", "v1", "racks", True, dict),)},
            "kinds declares Rack without a type",
        ),
        (
            {"kinds": (dataclasses.replace(RACK, namespace="ops"),)},
            "kinds declares Rack in a namespace",
        ),
        ({"kinds": (dataclasses.replace(RACK, object="<a>"),)}, "kinds declares Rack by a, which is not an argument"),
        ({"outside": "usage"}, "outside is not a tuple of texts"),
        ({"timed": "yes"}, "timed is neither True nor False nor the key"),
        ({"protects": 1}, "protects is neither True nor False"),
        ({"quotas": ("example.com/quota",)}, "quotas is not a tuple of Quotas"),
        ({"series": {"racks_open": "Open racks."}}, "series is not a tuple of pairs of texts"),
        ({"series": ("ab",)}, "series is not a tuple of pairs of texts"),
        ({"bind_timeout": "racks.timeout"}, "bind_timeout is not a key of its arguments"),
        ({"excludes": (("enableNothing", "gang"),)}, "excludes is not a tuple of pairs of an enable flag and a plugin"),
    ],
)
def test_entry_point_whose_class_declares_nonsense(package: MakePackage, declared: dict[str, Any], told: str) -> None:
    """Found when it is loaded: the watches would read it in the midst of a reload."""
    kind = type("Odd", (Parent,), {"name": "odd", **declared})
    with pytest.raises(RegistryError, match=rf"^entry point odd = some.module:Class: Odd\.{told}"):
        list(Extensions(Parent, package({}), lambda: [FakeEntryPoint("odd", kind)]))


def test_entry_point_cannot_take_the_name_of_one_in_the_tree(package: MakePackage) -> None:
    taken = type("Other", (Parent,), {"name": "gang"})
    with pytest.raises(RegistryError, match=r"the name gang is taken by module .*\.gang"):
        list(Extensions(Parent, package({"gang": GANG}), lambda: [FakeEntryPoint("gang", taken)]))


def test_the_compiled_in_default_can_be_used_as_it_is() -> None:
    assert read_policy(None).warnings == ()


# what a policy comes to ---------------------------------------------------------------------------------------------


class Sla(Plugin):
    """A plugin with an argument of each sort that is shown in its own way."""

    name = "sla"
    arguments = (
        Argument("sla-waiting-time", "duration", None, "how long a job may wait"),
        Argument("sla.resources", "strings", ("cpu",), "what counts"),
        Argument("sla.<resource>", "mapping", None, "of one resource"),
    )


class Allocate(Parent):
    """An action with an argument."""

    name = "allocate"
    arguments = (Argument("predicateErrorCacheEnable", "bool", True, "keep failures"),)


@pytest.fixture
def describe(monkeypatch: pytest.MonkeyPatch) -> Callable[[str], dict[str, Any]]:
    """What a file comes to where sla and allocate are all there is."""
    monkeypatch.setattr(registry, "plugins", lambda: {"sla": Sla})
    monkeypatch.setattr(registry, "actions", lambda: {"allocate": Allocate})
    return lambda entry: describe_policy(read_policy(f"actions: allocate\ntiers: [{{plugins: [{entry}]}}]"))


def test_default_of_an_argument_is_marked(describe: Callable[[str], dict[str, Any]]) -> None:
    arguments = describe("{name: sla}")["tiers"][0][0]["arguments"]
    assert arguments["sla.resources"] == {"value": ["cpu"], "default": True}


def test_argument_of_the_file_is_marked(describe: Callable[[str], dict[str, Any]]) -> None:
    arguments = describe("{name: sla, arguments: {sla-waiting-time: 90m}}")["tiers"][0][0]["arguments"]
    assert arguments["sla-waiting-time"] == {"value": "1h30m", "default": False}


def test_dynamic_argument_is_described(describe: Callable[[str], dict[str, Any]]) -> None:
    arguments = describe("{name: sla, arguments: {sla.cpu: {a: [1]}}}")["tiers"][0][0]["arguments"]
    assert arguments["sla.cpu"] == {"value": {"a": [1]}, "default": False}


def test_flags_are_those_that_differ_from_the_default(describe: Callable[[str], dict[str, Any]]) -> None:
    described = describe("{name: sla, enableJobOrder: false, enableQueueOrder: true, enableHierarchy: true}")
    assert described["tiers"][0][0]["flags"] == {"enableJobOrder": False, "enableHierarchy": True}


def test_argument_of_an_action_is_described(describe: Callable[[str], dict[str, Any]]) -> None:
    assert describe("{name: sla}")["actions"] == [
        {"name": "allocate", "arguments": {"predicateErrorCacheEnable": {"value": True, "default": True}}}
    ]


# --- kinds ----------------------------------------------------------------------------------------------------------


def offering(monkeypatch: pytest.MonkeyPatch, *extra: type[Plugin]) -> None:
    """Have these plugins offered by other distributions."""
    offered = {registry.PLUGIN_GROUP: [FakeEntryPoint(plugin.name, plugin) for plugin in extra]}
    monkeypatch.setattr(registry, "_entry_points", lambda group: offered.get(group, ()))
    registry.plugins.cache_clear()


@pytest.fixture
def forgetful() -> Iterator[None]:
    yield
    registry.plugins.cache_clear()


def closing(**arguments: str) -> str:
    given = {f"closer.{key}": value for key, value in arguments.items()}
    tiers = [{"plugins": [{"name": "gang"}, {"name": "closer", "arguments": given}]}]
    return yaml.safe_dump({"actions": "allocate", "tiers": tiers})


@pytest.mark.usefixtures("forgetful")
def test_what_is_read_are_the_kinds_that_the_plugins_of_the_policy_declare(monkeypatch: pytest.MonkeyPatch) -> None:
    offering(monkeypatch, Closer)
    assert [kind.name for kind in kinds_read(read_policy("actions: allocate"))] == list(ALWAYS_READ)
    read = {kind.name: kind for kind in kinds_read(read_policy(closing(where="here")))}
    assert list(read) == [*ALWAYS_READ, "PodDisruptionBudget", "Rack", "Notes"]
    assert read["Rack"] is not KINDS.get("Rack")
    assert (read["Notes"].path, read["Notes"].field_selector) == (
        "/api/v1/namespaces/here/configmaps",
        "metadata.name=notes",
    )
    assert registry.kinds()["Notes"].path == "/api/v1/configmaps"


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("where", ["", "Ops", "../secrets", "a/b"])
def test_an_argument_that_names_what_is_read_has_to_be_a_name(monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """An empty one would read every ConfigMap of the cluster."""
    offering(monkeypatch, Closer)
    with pytest.raises(PolicyError, match=r"closer\.where"):
        read_policy(closing(where=where))


@pytest.mark.usefixtures("forgetful")
@pytest.mark.parametrize("kind", [dataclasses.replace(RACK, plural="others"), dataclasses.replace(RACK, name="Pod")])
def test_a_kind_that_is_declared_twice_and_differently_is_refused(monkeypatch: pytest.MonkeyPatch, kind: Kind) -> None:
    other = type("Other", (Plugin,), {"name": "other", "kinds": (kind,)})
    offering(monkeypatch, Closer, other)
    with pytest.raises(RegistryError, match=rf"^other declares the kind {kind.name} otherwise than"):
        read_policy(closing())


@pytest.mark.usefixtures("forgetful")
def test_two_plugins_may_share_a_kind(monkeypatch: pytest.MonkeyPatch) -> None:
    offering(monkeypatch, Closer, type("Other", (Plugin,), {"name": "other", "kinds": (RACK,)}))
    assert registry.kinds()["Rack"] == RACK


@pytest.mark.usefixtures("forgetful")
def test_a_plugin_that_cannot_read_its_own_reason_is_told_of(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Puzzled(Closer):
        @classmethod
        def limits_of_reason(cls, reason: Waiting) -> list[QueueLimit]:
            raise KeyError("cpu")

    offering(monkeypatch, Puzzled)
    assert registry.limits_of(Waiting("ns/job", "queue", "closer", "no quota")) == []
    assert caplog.messages == ["plugin closer cannot read the limits in its own reason 'no quota': KeyError('cpu')"]


def test_a_code_that_ours_declares_is_not_a_strangers(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever is imported first: it is the stranger who is named."""

    class Twice(FakeEntryPoint):
        def load(self) -> type[Plugin]:
            ReasonCode("pods-missing", Cause.QUEUE_CAPABILITY, "mine")
            return Plugin

    twice = [Twice("stranger", None)]
    monkeypatch.setattr(registry, "_entry_points", lambda group: twice if "plugins" in group else [])
    for cached in (registry.plugins, registry.actions):
        cached.cache_clear()
    try:
        with pytest.raises(RegistryError, match=r"entry point stranger .*: ValueError: the reason pods-missing"):
            read_policy(None)
    finally:
        for cached in (registry.plugins, registry.actions):
            cached.cache_clear()
