"""The syntax trees of modules, each parsed once for all tests of a process that read them."""

import ast
from functools import cache
from pathlib import Path


@cache
def tree_of(path: Path) -> ast.Module:
    """Return the tree of a module that no test changes; who reads it leaves it as it is."""
    return ast.parse(path.read_text(encoding="utf-8"))
