"""Finds the columns of its input that a running trigger reads, so that the others need not be built."""

from collections.abc import Iterable, Sequence
from typing import Any

from candlewright_cep.binding.expressions import Column, Expression, walk
from candlewright_cep.matching.recognize import columns_of
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.plans import Filter, Group, Match, Plan, Project, Renamed, Scan, Union
from candlewright_cep.planning.windows import WindowTable

__all__ = ["columns_read"]


def columns_read(nodes: Sequence[Plan]) -> frozenset[str] | None:
    """Column names in the input of `nodes`; None for all columns, also if it is not known which ones are read."""
    if isinstance(nodes[0], Union):
        return _read_by_all(nodes[0])
    found: set[int] = set()
    for node in nodes:
        match node:
            case Scan() | Renamed():
                continue
            case Filter():
                found |= _read([node.condition])
            case WindowTable():
                found |= {node.time_column, *node.partition}
            case Over() if node.window.recognize is None:
                found |= _read(part for function in node.functions for part in function.arguments)
                found |= _read(key.expression for key in node.window.order) | {*node.window.partition}
            case Project() | Match() | Group():
                # Nodes above these cannot see the input.
                found |= _read_last(node)
                # Numbers of later columns are those that nodes have added, or slots.
                return frozenset(part.name for index, part in enumerate(nodes[0].fields) if index in found)
            case _:
                return None
    return None


def _read_by_all(node: Union) -> frozenset[str] | None:
    found: set[str] = set()
    for branch in node.branches:
        chain: list[Any] = [branch]
        while not isinstance(chain[-1], Scan | Union):
            chain.append(chain[-1].inner)
        names = columns_read(chain[::-1])
        if names is None:
            return None
        found |= names
    return frozenset(found)


def _read_last(node: Project | Match | Group) -> set[int]:
    match node:
        case Project():
            return _read(node.expressions)
        case Group():
            return _read([*node.keys, *node.aggregates])
    return {*columns_of(node.recognize)}


def _read(expressions: Iterable[Expression]) -> set[int]:
    return {part.index for node in expressions for part in walk(node) if isinstance(part, Column)}
