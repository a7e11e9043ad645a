"""Values that cross the border of a process have types: `Any` there is counted, and only shrinks.

A border is HTTP, the JSON of a command, a record in Redis, an object of Kubernetes, a row of Spark,
a setting. What a callback takes or a library passes through says nothing of such values.
"""

import ast
from collections import Counter
from collections.abc import Collection
from pathlib import Path

from tests.syntax_trees import tree_of

SOURCE = Path(__file__).parent.parent / "operator" / "partq"

MOST = 89
"""Places with `Any`, callbacks and forwarded arguments left out. Only a lower number goes here."""
MOST_BY_ALIAS = 173
"""Places with an alias that is made of `Any`, such as `Reply`: a reader knows what it is, mypy does
not look inside. Only a lower number goes here."""
SLACK = 10
"""By so many there may be fewer before a number has to follow: two changes need not meet in it."""

GENERICS = {
    "AsyncGenerator", "Awaitable", "Callable", "Coroutine", "Future", "Generator", "Handle",
    "PublishFuture", "Task", "TaskSet",
}  # fmt: skip
"""What they work on is the caller's business."""
PROTOCOLS = {"__aexit__", "__exit__", "__getattr__", "__new__"}

ADVICE = (
    "decode what comes from outside into a struct of wire/calls (Session.ask takes its type), give "
    "what is only rendered `object`, and what has no shape of its own a named alias such as Body, "
    "EventArgs or Reply, in one place"
)
ADVICE_BY_ALIAS = "give the values a type, as kube/bodies.py and wire/effective_specs.py do"


def _name(node: ast.AST) -> str:
    if isinstance(node, ast.Attribute):
        return node.attr
    return node.id if isinstance(node, ast.Name) else ""


def _says(node: ast.AST, names: Collection[str]) -> bool:
    if isinstance(node, ast.Subscript) and _name(node.value) in GENERICS:
        return False
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        words = node.value.replace("[", " ").replace("]", " ").replace(",", " ").split()
        return not set(names).isdisjoint(words)
    return _name(node) in names or any(_says(each, names) for each in ast.iter_child_nodes(node))


def aliases(tree: ast.Module) -> set[str]:
    """Return the names that a module gives to types with `Any`."""
    return {
        _name(target)
        for node in tree.body
        if isinstance(node, ast.Assign)
        and not isinstance(node.value, ast.Constant | ast.Call)
        and _says(node.value, {"Any"})
        for target in node.targets
    }


def places(tree: ast.Module, names: Collection[str] = ("Any",)) -> list[int]:
    """Return the lines of annotations, aliases and casts that say one of the names, one each."""
    types: list[ast.expr] = []
    passed: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            of = node.args
            named = [each.annotation for each in (*of.posonlyargs, *of.args, *of.kwonlyargs)]
            rest = [each.annotation for each in (of.vararg, of.kwarg) if each is not None]
            found = [each for each in (*named, node.returns) if each is not None]
            (passed if node.name in PROTOCOLS else types).extend(found)
            passed += [each for each in rest if each is not None]
        elif isinstance(node, ast.AnnAssign):
            types.append(node.annotation)
    known = {id(node) for kind in (*types, *passed) for node in ast.walk(kind)}
    for node in ast.walk(tree):  # aliases, casts, decoders
        if id(node) in known:
            continue
        if isinstance(node, ast.Subscript | ast.BinOp) or _name(node) in names:
            known.update(id(inner) for inner in ast.walk(node))
            types += [node] if isinstance(node, ast.expr) else []
    return [kind.lineno for kind in types if _says(kind, names)]


def test_any_at_borders_only_shrinks():
    counts: Counter[str] = Counter()
    for path in SOURCE.rglob("*.py"):
        found = places(tree_of(path))
        counts[path.relative_to(SOURCE).parts[0]] += len(found)
    count, by_package = counts.total(), dict(counts.most_common())
    assert count <= MOST, f"got {count} places {by_package}, expected {MOST} at most: {ADVICE}"
    assert count > MOST - SLACK, f"got {count} places: write that number as MOST"


def test_any_by_an_alias_only_shrinks():
    trees = {path: tree_of(path) for path in SOURCE.rglob("*.py")}
    known = {path: aliases(tree) for path, tree in trees.items()}
    every = set().union(*known.values())
    counts: Counter[str] = Counter()
    for path, tree in trees.items():
        imported = {
            each.name
            for node in ast.walk(tree)
            if isinstance(node, ast.ImportFrom)
            for each in node.names
        }
        for name in known[path] | (every & imported):
            counts[name] += len(places(tree, {name}))
    count, by_name = counts.total(), dict(counts.most_common())
    most = MOST_BY_ALIAS
    assert count <= most, (
        f"got {count} places {by_name}, expected {most} at most: {ADVICE_BY_ALIAS}"
    )
    assert count > most - SLACK, f"got {count} places: write that number as MOST_BY_ALIAS"


def test_what_counts():
    source = """
from typing import Any
Alias = dict[str, Any]
def f(a: Any, b: "list[Any]", c: "Company", *args: Any, d: Callable[[Any], None], **kw: Any) -> Any:
    e: Mapping[str, Any] = cast(Any, a)
    g: Task[Any] = h
def __exit__(self, kind: Any) -> None: ...
"""
    assert places(ast.parse(source)) == [4, 4, 4, 5, 3, 5]
    assert aliases(ast.parse(source)) == {"Alias"}
