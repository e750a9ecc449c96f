"""Planted bugs: small patches of the production code, by which the simulation shows that it finds such things.

Each is an entry of a file in ``mutants/``. It is applied in the simulated process alone, while its module is imported.
"""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

import msgspec

ROOT = Path(__file__).parents[2]
FOLDER = Path(__file__).with_suffix("")
SCRIPTS = FOLDER / "scripts"
"""For most of them a script that shows it, under its name: with the bug it violates an invariant, without it none."""


class Mutant(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A bug: in ``module`` the text ``old``, which is there once, is ``new``. ``does`` says what that would do to a
    user, ``fires`` which invariant is expected to tell of it."""

    module: str
    does: str
    fires: str
    old: str
    new: str

    @property
    def path(self) -> Path:
        """The module's file: a module's, or a package's own."""
        path = ROOT.joinpath(*self.module.split("."))
        return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")

    def source(self, text: str | None = None) -> str:
        """The module's text with the bug in it, or another text of it. Raises ValueError where the old text is not
        there just once."""
        text = self.path.read_text() if text is None else text
        count = text.count(self.old)
        if count != 1:
            where = f"{self.path.relative_to(ROOT)} has {count} times what a mutant replaces, instead of once"
            raise ValueError(f"{where}; bring tests/simulation/mutants up to date with it:\n{self.old}")
        return text.replace(self.old, self.new)

    def plant_in(self, texts: dict[str, str]) -> None:
        """Have the bug in the texts of modules, by their names, beside others that are there already. Raises ValueError
        or SyntaxError where it cannot be beside them, and leaves the texts as they are."""
        text = self.source(texts.get(self.module))
        compile(text, str(self.path), "exec", dont_inherit=True)
        texts[self.module] = text


def mutants() -> dict[str, Mutant]:
    """All of them, by name. Raises msgspec.ValidationError where a file is not as it should be."""
    found: dict[str, Mutant] = {}
    for file in sorted(FOLDER.glob("*.toml")):
        of_file = msgspec.convert(tomllib.loads(file.read_text()), dict[str, Mutant])
        if twice := found.keys() & of_file.keys():
            raise ValueError(f"{file}: {min(twice)} is the name of another mutant, too")
        found |= of_file
    return found


def plant(*names: str) -> None:
    """Have bugs in this process, which has not imported vcd yet. Raises KeyError, and what ``Mutant.plant_in`` does."""
    known, texts = mutants(), dict[str, str]()
    for name in names:
        known[name].plant_in(texts)
    for module, text in texts.items():
        if module in sys.modules:
            raise RuntimeError(f"{module} is imported already: a mutant has to come before it")
        sys.meta_path.insert(0, _Finder(module, text))


class _Finder(MetaPathFinder):
    """Finds one module, with another text than its file has."""

    def __init__(self, module: str, source: str) -> None:
        self._module = module
        self._source = source

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec of the module; None for all others."""
        spec = PathFinder.find_spec(fullname, path, target) if fullname == self._module else None
        if spec is not None and spec.origin is not None:
            spec.loader = _Loader(fullname, spec.origin, self._source)
        return spec


class _Loader(SourceFileLoader):
    """Compiles a text in place of the file's, past the cache of compiled files."""

    def __init__(self, fullname: str, path: str, source: str) -> None:
        super().__init__(fullname, path)
        self._source = source

    def get_code(self, fullname: str) -> CodeType:
        """The code of the text."""
        return compile(self._source, self.path, "exec", dont_inherit=True)
