"""What the public names say of themselves: each field and argument has its meaning and unit."""

import ast
import dataclasses
import inspect
import re
import textwrap

import pytest

import partq
from partq.testing.local_broker import LocalBroker

PUBLIC = [getattr(partq, name) for name in partq.__all__]
CLASSES = [
    each for each in PUBLIC if inspect.isclass(each) and not issubclass(each, partq.PartqError)
]
CALLED = [*CLASSES, partq.producer_due, LocalBroker]
HANDED_OUT = {
    partq.Batch,
    partq.Delivery,
    partq.LockedSession,
    partq.Positions,
    partq.Transaction,
}
"""Made by partq alone: nobody else calls their constructors."""


def has_own_constructor(each):
    is_made = dataclasses.is_dataclass(each) or each in HANDED_OUT
    return "__init__" in vars(each) and not is_made


@pytest.mark.parametrize("kind", CLASSES, ids=lambda kind: kind.__name__)
def test_a_field_says_what_it_holds(kind):
    """A field of a value, and a member of an enumeration, has a docstring below it."""
    (node,) = ast.parse(textwrap.dedent(inspect.getsource(kind))).body
    fields = [
        (each.target if isinstance(each, ast.AnnAssign) else each.targets[0], after)
        for each, after in zip(node.body, [*node.body[1:], None], strict=True)
        if isinstance(each, ast.AnnAssign | ast.Assign)
    ]
    bare = [
        name.id
        for name, after in fields
        if isinstance(name, ast.Name)
        and not name.id.startswith("_")
        and not (isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant))
    ]
    assert bare == []


@pytest.mark.parametrize(
    "called",
    [each for each in CALLED if not inspect.isclass(each) or has_own_constructor(each)],
    ids=lambda called: called.__name__,
)
def test_an_argument_is_described(called):
    described = inspect.getdoc(called).partition("\nArgs:\n")[2]
    names = set(re.findall(r"^    (\w+):", described, re.MULTILINE))
    assert set(inspect.signature(called).parameters) <= names
