"""Planted bugs: functions that replace functions and methods of vcd in a simulated process.

The simulation has to find each of them, which shows what it can find. A bug is a function of one of the modules of this
package, which are named after the layers of vcd. It refers to its target by a Python reference and has the target's
signature, so that mypy reports a bug whose target has moved or changed.

The modules import vcd. They are imported by ``mutants()``, since ``machine.install`` has to come before vcd.
"""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

ROOT = Path(__file__).parents[3]
SCRIPTS = Path(__file__).parent / "scripts"
"""A script for many of the bugs, under the bug's name. It violates an invariant with the bug, and none without it."""
LAYERS = ("daemon", "edges", "eventlog", "kube", "replicas", "scheduling", "state")

_registered: dict[str, Mutant] = {}


@dataclass(frozen=True)
class Mutant:
    """A planted bug."""

    name: str
    does: str
    """What a user would meet."""
    found_by: str
    """The invariant that finds it in the simulation, or the test, as pytest names it, that fails with it."""
    target: Callable[..., Any]
    replacement: Callable[..., Any]

    @property
    def has_test(self) -> bool:
        """Whether a test finds it, and not the simulation."""
        return "::" in self.found_by

    @property
    def module(self) -> str:
        """The module of the target."""
        return self.target.__module__

    @property
    def target_name(self) -> str:
        """The target's name in its module, which is unique."""
        return f"{self.module}.{self.target.__qualname__}"

    def plant(self) -> None:
        """Replace the target in its class, or in each module of vcd that has imported it."""
        *classes, attribute = self.target.__qualname__.split(".")
        if not classes:
            for name, module in list(sys.modules.items()):
                if name.partition(".")[0] == "vcd":
                    for each in [each for each, value in vars(module).items() if value is self.target]:
                        setattr(module, each, self.replacement)
            return
        owner: Any = sys.modules[self.module]
        for name in classes:
            owner = getattr(owner, name)
        is_bound = isinstance(inspect.getattr_static(owner, attribute), staticmethod | classmethod)
        setattr(owner, attribute, staticmethod(self.replacement) if is_bound else self.replacement)


def replaces(target: Callable[P, R], *, found_by: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Register the decorated function as a planted bug that replaces ``target``.

    The function's name is the bug's name, its docstring says what the bug does to users. A bug that calls the original
    refers to it by a name of its own module: the target's name leads to the bug once it is planted.
    """

    def register(function: Callable[P, R]) -> Callable[P, R]:
        name = function.__name__.replace("_", "-")
        if name in _registered:
            raise ValueError(f"two planted bugs are called {name}")
        does = " ".join((function.__doc__ or "").split())
        _registered[name] = Mutant(name, does, found_by, target, function)
        return function

    return register


def mutants() -> dict[str, Mutant]:
    """Return all planted bugs by name, layer by layer. Imports vcd."""
    for layer in LAYERS:
        import_module(f"{__name__}.{layer}")
    return _registered


def plant(*names: str) -> None:
    """Plant bugs in this process. Raises KeyError for a name that is no bug's."""
    known = mutants()
    for name in names:
        known[name].plant()
