"""Finds, in source text, what would make a decision depend on more than its input (docs/laws.md, law 2).

A clock, chance, input and output; and the orders that differ from run to run: of sets, of ``id()``, of ``hash()``.
The checker follows no calls. What it knows to be a set: literals, comprehensions, ``set()`` and ``frozenset()``, what
set operators and methods make of them, names that are assigned one or annotated as one, what is in containers that are
annotated to hold them, and, in all modules that are checked together, attributes and functions annotated as sets.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

IMPURE_MODULES = frozenset({
    "aiohttp", "aiosqlite", "anyio", "asyncio", "concurrent", "contextvars", "fcntl", "getpass", "glob", "http", "io",
    "kubernetes_asyncio", "multiprocessing", "os", "pathlib", "platform", "queue", "random", "secrets",
    "select", "selectors", "shutil", "signal", "socket", "sqlite3", "ssl", "subprocess", "sys", "tempfile", "threading",
    "time", "urllib", "uuid", "weakref",
})  # fmt: skip
"""Nothing that decides has a use for these. ``datetime`` reads times, and has its own rule; logging decides nothing."""
PURE_SUBMODULES = frozenset({"urllib.parse"})
IMPURE_CALLS = frozenset({"open", "input", "print", "exec", "eval", "__import__", "globals"})
PRESENT_TIME = frozenset({"now", "utcnow", "today"})
FILE_METHODS = frozenset({"read_text", "read_bytes", "write_text", "write_bytes"})
IMPURE_SUBMODULES = frozenset({("np", "random"), ("numpy", "random")})

_SET_CALLS = frozenset({"set", "frozenset"})
_SET_TYPES = frozenset({"set", "frozenset", "Set", "AbstractSet", "MutableSet", "FrozenSet"})
_SET_METHODS = frozenset({"union", "intersection", "difference", "symmetric_difference", "copy"})
_SET_OPERATORS = (ast.BitOr, ast.BitAnd, ast.Sub, ast.BitXor)
_VIEWS = frozenset({"keys", "items"})
# These take any number of items and give the same for each order of them.
_ORDERLESS = frozenset({"sorted", "len", "min", "max", "any", "all", "sum", "set", "frozenset", "bool"})
# These are orderless, but with a key what compares equal stays in the order in which it came.
_TIES = frozenset({"sorted", "min", "max"})
_ORDERED_CALLS = frozenset({
    "list", "tuple", "enumerate", "iter", "zip", "map", "filter", "reversed", "dict", "deque", "chain", "accumulate",
    "islice", "OrderedDict", "heapify", "array", "asarray", "fromiter",
})  # fmt: skip
_ORDERED_METHODS = frozenset({"extend", "extendleft", "join", "fromkeys", "from_iterable"})
_SORTS = frozenset({"sorted", "min", "max", "sort", "nsmallest", "nlargest", "heappush", "insort", "bisect", "groupby"})


def _is_impure(module: str) -> bool:
    return module.partition(".")[0] in IMPURE_MODULES and module not in PURE_SUBMODULES


class Finding(NamedTuple):
    """What is wrong at a line."""

    line: int
    what: str


def check(source: str, *others: str) -> list[Finding]:
    """All findings in a module's source, by line; ``others`` are the sources of modules that it may import."""
    tree = ast.parse(source)
    return _check(tree, _sets_by_annotation([tree, *map(ast.parse, others)]))


def check_files(files: Iterable[Path], root: Path) -> list[str]:
    """``file:line: what`` for modules that are checked together; files are named from ``root``."""
    trees = {file: ast.parse(file.read_text()) for file in sorted(files)}
    annotated = _sets_by_annotation(trees.values())
    return [
        f"{file.relative_to(root)}:{finding.line}: {finding.what}"
        for file, tree in trees.items()
        for finding in _check(tree, annotated)
    ]


def _check(tree: ast.Module, annotated: _Annotated) -> list[Finding]:
    return sorted({*_uses(tree), *_Orders(tree, annotated).findings()})


class _Annotated(NamedTuple):
    """Names of functions that return sets, and of attributes that are sets, whatever object has them."""

    functions: frozenset[str]
    attributes: frozenset[str]


def _sets_by_annotation(trees: Iterable[ast.Module]) -> _Annotated:
    """A name that is also annotated as something else somewhere is not taken for a set."""
    functions: dict[str, bool] = {}
    attributes: dict[str, bool] = {}
    for tree in trees:
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.returns is not None:
                is_property = any(isinstance(each, ast.Name) and each.id == "property" for each in node.decorator_list)
                found = attributes if is_property else functions
                found[node.name] = found.get(node.name, True) and _is_set_type(node.returns)
            elif isinstance(node, ast.ClassDef):
                for name, annotation in _fields(node):
                    attributes[name] = attributes.get(name, True) and _is_set_type(annotation)
    return _Annotated(*(frozenset(name for name, all_sets in found.items() if all_sets)
                        for found in (functions, attributes)))  # fmt: skip


def _fields(node: ast.ClassDef) -> Iterator[tuple[str, ast.expr]]:
    for each in ast.walk(node):
        if isinstance(each, ast.AnnAssign):
            if isinstance(each.target, ast.Attribute):
                yield each.target.attr, each.annotation
            elif isinstance(each.target, ast.Name) and each in node.body:
                yield each.target.id, each.annotation


# --- clocks, chance, input and output -------------------------------------------------------------------------------


def _uses(tree: ast.Module) -> Iterator[Finding]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                if _is_impure(alias.name) or alias.name == "numpy.random":
                    yield Finding(node.lineno, f"import of {alias.name}")
        elif isinstance(node, ast.ImportFrom) and not node.level:
            module = node.module or ""
            named = {f"{module}.{alias.name}" for alias in node.names}
            if _is_impure(module) or "numpy.random" in {module, *named}:
                yield Finding(node.lineno, f"import from {module}")
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in IMPURE_CALLS:
            yield Finding(node.lineno, f"call of {node.func.id}()")
        elif isinstance(node, ast.Attribute):
            yield from _attribute(node)


def _attribute(node: ast.Attribute) -> Iterator[Finding]:
    base = node.value.id if isinstance(node.value, ast.Name) else ""
    if isinstance(node.value, ast.Attribute):
        base = node.value.attr
    if base in ("datetime", "date") and node.attr in PRESENT_TIME:
        yield Finding(node.lineno, f"{base}.{node.attr} asks a clock")
    elif node.attr in FILE_METHODS:
        yield Finding(node.lineno, f"{node.attr} touches a file")
    elif (base, node.attr) in IMPURE_SUBMODULES:
        yield Finding(node.lineno, f"{base}.{node.attr} is chance")


# --- orders ---------------------------------------------------------------------------------------------------------

_Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
_Comprehension = ast.ListComp | ast.SetComp | ast.DictComp | ast.GeneratorExp


class _Orders:
    """Where an order that differs from run to run gets out."""

    def __init__(self, tree: ast.Module, annotated: _Annotated) -> None:
        self._tree = tree
        self._annotated = annotated
        self._parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
        # Names that are sets, by the function (or class, or module) whose they are; attributes by their class.
        self._names: dict[ast.AST, dict[str, bool]] = {}
        self._attributes: dict[ast.AST | None, set[str]] = {}
        self._holders: set[tuple[ast.AST, str]] = set()  # names and attributes of containers that hold sets
        self._learn()

    def findings(self) -> Iterator[Finding]:
        for node in ast.walk(self._tree):
            yield from self._iterations(node)
            if isinstance(node, ast.Call):
                yield from self._call(node)

    # --- what is a set ----------------------------------------------------------------------------------------------

    def _learn(self) -> None:
        """Collect names and attributes until no more come: one may be assigned from another below it."""
        before = -1
        while before != (before := self._known()):
            for node in ast.walk(self._tree):
                if isinstance(node, ast.arg) and node.annotation is not None:
                    if _is_set_type(node.annotation):
                        self._note(self._scope(node), node.arg)
                    elif _holds_sets(node.annotation):
                        self._holders.add((self._scope(node), node.arg))
                elif isinstance(node, ast.AnnAssign):
                    if _is_set_type(node.annotation):
                        self._note_target(node.target)
                    elif _holds_sets(node.annotation):
                        self._note_holder(node.target)
                elif isinstance(node, ast.For | ast.comprehension):
                    self._note_items(node.target, node.iter)
                elif isinstance(node, ast.Assign | ast.NamedExpr) and self.is_set(node.value):
                    for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                        self._note_target(target)

    def _note_holder(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._holders.add((self._scope(target), target.id))
        elif isinstance(target, ast.Attribute):
            self._holders.add((self._class(target) or self._tree, f"self.{target.attr}"))

    def _note_items(self, target: ast.expr, source: ast.expr) -> None:
        """The variable of a loop over a container of sets is one."""
        match target, source:
            case _, ast.Call(func=ast.Attribute(value=holder, attr="values")) if self._holds(holder):
                self._note_target(target)
            case ast.Tuple(elts=[*_, last]), ast.Call(func=ast.Attribute(value=holder, attr="items")):
                if self._holds(holder):
                    self._note_target(last)

    def _holds(self, node: ast.expr) -> bool:
        if isinstance(node, ast.Name):
            return any((scope, node.id) in self._holders for scope in (*self._up(node), self._tree))
        if isinstance(node, ast.Attribute):
            return (self._class(node) or self._tree, f"self.{node.attr}") in self._holders
        return False

    def _known(self) -> int:
        return len(self._holders) + sum(map(len, self._names.values())) + sum(map(len, self._attributes.values()))

    def _note_target(self, target: ast.expr) -> None:
        if isinstance(target, ast.Name):
            self._note(self._scope(target), target.id)
        elif isinstance(target, ast.Attribute) and isinstance(target.value, ast.Name) and target.value.id == "self":
            self._attributes.setdefault(self._class(target), set()).add(target.attr)

    def _note(self, scope: ast.AST, name: str) -> None:
        self._names.setdefault(scope, {})[name] = True
        if isinstance(scope, ast.ClassDef):  # a field of a dataclass or struct
            self._attributes.setdefault(scope, set()).add(name)

    def _up(self, node: ast.AST) -> Iterator[ast.AST]:
        while node in self._parents:
            node = self._parents[node]
            yield node

    def _scope(self, node: ast.AST) -> ast.AST:
        inside = (_Function, ast.ClassDef) if not isinstance(node, ast.arg) else (_Function,)
        return next((each for each in self._up(node) if isinstance(each, inside)), self._tree)

    def _class(self, node: ast.AST) -> ast.AST | None:
        return next((each for each in self._up(node) if isinstance(each, ast.ClassDef)), None)

    def _named_set(self, node: ast.Name) -> bool:
        """Whether the innermost scope that knows the name knows it as a set."""
        for scope in (*self._up(node), self._tree):
            if self._names.get(scope, {}).get(node.id):
                return not isinstance(scope, ast.ClassDef) or self._parents.get(node) is scope
            if isinstance(scope, _Function) and _binds(scope, node.id):
                return False
        return False

    def is_set(self, node: ast.expr) -> bool:
        """Whether an expression is known to be a set."""
        match node:
            case ast.Set() | ast.SetComp():
                return True
            case ast.Name():
                return self._named_set(node)
            case ast.Attribute(value=ast.Name(id="self"), attr=name) if name in self._attributes.get(
                self._class(node), ()
            ):
                return True
            case ast.Attribute(attr=name):
                return name in self._annotated.attributes
            case ast.Subscript(value=holder):
                return self._holds(holder)
            case ast.Call(func=ast.Name(id=name)):
                return name in _SET_CALLS or name in self._annotated.functions
            case ast.Call(func=ast.Attribute(value=value, attr=name)):
                if name in ("get", "setdefault", "pop") and self._holds(value):
                    return True
                return name in self._annotated.functions or (name in _SET_METHODS and self.is_set(value))
            case ast.BinOp(left=left, op=op, right=right) if isinstance(op, _SET_OPERATORS):
                return any(self.is_set(side) or _is_view(side) for side in (left, right))
            case ast.IfExp(body=body, orelse=other):
                return self.is_set(body) or self.is_set(other)
            case ast.BoolOp(values=values):
                return any(self.is_set(value) for value in values)
            case ast.NamedExpr(value=value):
                return self.is_set(value)
        return False

    # --- where its order gets out -----------------------------------------------------------------------------------

    def _iterations(self, node: ast.AST) -> Iterator[Finding]:
        if isinstance(node, ast.For) and self.is_set(node.iter) and not _orderless_body(node):
            yield Finding(node.lineno, f"loop over the set {ast.unparse(node.iter)}")
        elif isinstance(node, _Comprehension):
            for generator in node.generators:
                if self.is_set(generator.iter) and not self._order_is_lost(node):
                    yield Finding(node.lineno, f"comprehension over the set {ast.unparse(generator.iter)}")
        elif isinstance(node, ast.Starred) and isinstance(node.ctx, ast.Load) and self.is_set(node.value):
            if not isinstance(self._parents[node], ast.Set):
                yield Finding(node.lineno, f"unpacking of the set {ast.unparse(node.value)}")
        elif isinstance(node, ast.YieldFrom) and self.is_set(node.value):
            yield Finding(node.lineno, f"yield from the set {ast.unparse(node.value)}")
        elif isinstance(node, ast.Assign) and self.is_set(node.value):
            match node.targets[0]:
                case ast.Tuple(elts=[_, _, *_]) | ast.List(elts=[_, _, *_]):
                    yield Finding(node.lineno, f"unpacking of the set {ast.unparse(node.value)}")

    def _order_is_lost(self, node: ast.AST) -> bool:
        """Whether a comprehension only feeds what does not ask for its order."""
        if isinstance(node, ast.SetComp):
            return True
        parent = self._parents.get(node)
        if isinstance(node, ast.DictComp) or not isinstance(parent, ast.Call) or node not in parent.args:
            return False
        return _orderless(parent) or self._set_method(parent)

    def _set_method(self, call: ast.Call) -> bool:
        return isinstance(call.func, ast.Attribute) and self.is_set(call.func.value)

    def _call(self, node: ast.Call) -> Iterator[Finding]:
        name = _called(node)
        if name == "popitem" and isinstance(node.func, ast.Attribute) and not node.args and not node.keywords:
            yield Finding(node.lineno, "popitem() takes any item")
        elif name == "pop" and not node.args and self._set_method(node):
            yield Finding(node.lineno, f"{ast.unparse(node)} takes any item of a set")
        elif name in ("id", "hash") and isinstance(node.func, ast.Name):
            yield from self._identity(node, name)
        for keyword in node.keywords:
            if keyword.arg == "key" and isinstance(keyword.value, ast.Name) and keyword.value.id in ("id", "hash"):
                yield Finding(node.lineno, f"{keyword.value.id}() in the key of an order")
        if name in _TIES and isinstance(node.func, ast.Name) and not _orderless(node):
            yield from self._ties(node)
        method = isinstance(node.func, ast.Attribute)
        if name in _ORDERED_CALLS or (method and name in _ORDERED_METHODS):
            for argument in node.args:
                if self.is_set(argument) and not self._feeds_orderless(node):
                    yield Finding(node.lineno, f"{name}() of the set {ast.unparse(argument)}")

    def _feeds_orderless(self, node: ast.Call) -> bool:
        parent = self._parents.get(node)
        return isinstance(parent, ast.Call) and node in parent.args and _orderless(parent)

    def _ties(self, node: ast.Call) -> Iterator[Finding]:
        for argument in node.args:
            if self.is_set(argument):
                yield Finding(node.lineno, f"{_called(node)}(key=...) leaves ties in the order of a set")

    def _identity(self, node: ast.Call, name: str) -> Iterator[Finding]:
        """``id()`` and ``hash()`` where they order or compare; as keys of a memory they are harmless."""
        below: ast.AST = node
        for above in self._up(node):
            if isinstance(above, ast.Compare) and not all(isinstance(op, ast.In | ast.NotIn) for op in above.ops):
                yield Finding(node.lineno, f"{name}() in a comparison")
                return
            if isinstance(above, ast.Call) and below is not above.func and _called(above) in _SORTS:
                yield Finding(node.lineno, f"{name}() in the key of an order")
                return
            if isinstance(above, _Function):
                if isinstance(above, ast.Lambda):
                    below = above
                    continue
                if name == "hash" and above.name != "__hash__":
                    yield Finding(node.lineno, "hash() differs between runs")
                elif _is_order_key(above.name):
                    yield Finding(node.lineno, f"{name}() in {above.name}")
                return
            below = above
        if name == "hash":
            yield Finding(node.lineno, "hash() differs between runs")


def _is_order_key(name: str) -> bool:
    return name in ("__lt__", "__le__", "__gt__", "__ge__") or name.endswith("_key") or name == "key"


def _is_set_type(annotation: ast.expr) -> bool:
    match annotation:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in _SET_TYPES
        case ast.Subscript(value=value):
            return _is_set_type(value)
        case ast.BinOp(left=left, right=right):
            return _is_set_type(left) or _is_set_type(right)
        case ast.Constant(value=str(text)):
            return _is_set_type(ast.parse(text, mode="eval").body)
    return False


def _holds_sets(annotation: ast.expr) -> bool:
    """Whether an annotation is of a container whose items (a mapping's values) are sets."""
    match annotation:
        case ast.Subscript(slice=ast.Tuple(elts=[*_, last])):
            return _is_set_type(last)
        case ast.Subscript(slice=item):
            return _is_set_type(item)
    return False


def _is_view(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _VIEWS


def _called(node: ast.Call) -> str:
    if isinstance(node.func, ast.Name):
        return node.func.id
    return node.func.attr if isinstance(node.func, ast.Attribute) else ""


def _orderless(call: ast.Call) -> bool:
    """Whether a call gives the same for each order of its items."""
    if not isinstance(call.func, ast.Name) or call.func.id not in _ORDERLESS:
        return False
    return call.func.id not in _TIES or not any(keyword.arg == "key" for keyword in call.keywords)


def _binds(function: _Function, name: str) -> bool:
    """Whether a function has a parameter of this name, which hides what is outside."""
    arguments = function.args
    every = (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg)
    return any(each is not None and each.arg == name for each in every)


def _orderless_body(loop: ast.For) -> bool:
    """Whether a loop does the same after each order of its items: it adds to sets, drops keys, counts whole numbers."""
    returned = {ast.unparse(each) for each in ast.walk(loop) if isinstance(each, ast.Return)}
    return len(returned) < 2 and not loop.orelse and all(_orderless_statement(each) for each in loop.body)


def _orderless_statement(statement: ast.stmt) -> bool:
    match statement:
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="add" | "discard"))):
            return True
        case ast.Expr(value=ast.Call(func=ast.Attribute(attr="pop"), args=[_, *_])):
            return True
        case ast.AugAssign(op=ast.Add() | ast.Sub(), value=ast.Constant(value=int())):
            return True
        case ast.Delete() | ast.Continue() | ast.Pass() | ast.Return(value=ast.Constant() | None):
            return True
        case ast.If(body=body, orelse=other):
            return all(_orderless_statement(each) for each in (*body, *other))
    return False
