"""What one file of Python holds. Pure: bytes in, numbers out."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

Definition: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, slots=True)
class Reading:
    """The numbers of one file."""

    lines: int
    functions: int
    """With methods, and functions inside of others."""
    classes: int
    documented: int
    """Of the module, its functions and its classes: how many have a docstring."""


def read(source: bytes, path: str) -> Reading:
    """Parse, and count. Raises SyntaxError, with the path in it, when this is no Python of our version."""
    with warnings.catch_warnings(action="ignore"):  # it is not ours to warn about
        module = ast.parse(source, path)
    definitions = list(_definitions(module))
    classes = sum(isinstance(node, ast.ClassDef) for node in definitions)
    return Reading(
        lines=len(source.splitlines()),
        functions=len(definitions) - classes,
        classes=classes,
        documented=sum(ast.get_docstring(node, clean=False) is not None for node in (module, *definitions)),
    )


def _definitions(module: ast.Module) -> Iterator[Definition]:
    """Every function and class, however deep. Expressions hold none, and most of a tree is expressions."""
    todo: list[ast.AST] = [module]
    while todo:
        for node in ast.iter_child_nodes(todo.pop()):
            if isinstance(node, Definition):
                yield node
            if not isinstance(node, ast.expr):
                todo.append(node)
