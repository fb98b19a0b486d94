"""Finds the columns of inputs and views that a text reads, so that the others need not be read or computed."""

from collections.abc import Iterable, Iterator
from typing import Any

from candlewright_cep.binding.expressions import Column, Expression, WindowFunction, walk
from candlewright_cep.matching.recognize import columns_of
from candlewright_cep.planning.over import Over, Window
from candlewright_cep.planning.plans import (
    AsofJoin,
    Filter,
    Group,
    Join,
    Limited,
    Match,
    Narrowed,
    Plan,
    Project,
    Renamed,
    Scan,
    Sort,
    Union,
    Values,
)
from candlewright_cep.planning.windows import WindowTable

__all__ = ["columns_called", "columns_of_inputs", "columns_read"]

_Wanted = Iterator[tuple[Any, set[int]]]


def columns_read(plan: Plan, view: str) -> frozenset[str]:
    """The columns of the built-in view `view` that the plan reads. Registered views are computed whole, because other
    texts read them too.
    """
    return frozenset(
        node.inner.fields[index].name
        for node, wanted in _nodes(plan, until=view)
        if isinstance(node, Renamed) and node.registered == view
        for index in wanted
    )


def columns_of_inputs(plan: Plan) -> dict[str, frozenset[int]]:
    """The columns of each input that the plan reads."""
    found: dict[str, frozenset[int]] = {}
    for node, wanted in _nodes(plan):
        if isinstance(node, Scan):
            found[node.name] = found.get(node.name, frozenset()) | wanted
    return found


def columns_called(window: Window, functions: Iterable[WindowFunction]) -> set[int]:
    """The columns that these functions over a window read."""
    keys = _read(key.expression for key in window.order) | {*window.partition}
    return keys | _read(argument for function in functions for argument in function.arguments)


def _nodes(plan: Plan, until: str = "") -> _Wanted:
    """The nodes of a plan and the columns that are read of each; below the view `until`, none."""
    pending: list[tuple[Any, set[int]]] = [(plan, _all(plan))]
    while pending:
        node, wanted = pending.pop()
        yield node, wanted
        if not isinstance(node, Renamed) or not node.registered:
            pending += _below(node, wanted)
        elif node.registered != until:
            pending.append((node.inner, _all(node.inner)))


def _all(plan: Plan) -> set[int]:
    return {*range(len(plan.fields))}


def _below(node: Any, wanted: set[int]) -> _Wanted:
    """The nodes that this one reads, and which of their columns; `wanted` are those of its own that are read."""
    match node:
        case Scan() | Values():
            return
        case Renamed() | Narrowed() | Limited():
            yield node.inner, wanted
        case Filter():
            yield node.inner, wanted | _read([node.condition])
        case Sort():
            yield node.inner, wanted | _read(key.expression for key in node.keys)
        case Project():
            yield node.inner, _read(node.expressions[index] for index in wanted)
        case Union():
            yield from ((branch, wanted) for branch in node.branches)
        case Join() | AsofJoin():
            yield from _below_join(node, wanted)
        case Group():
            yield node.inner, _read([*node.keys, *node.aggregates])
        case Match():
            yield node.inner, {*columns_of(node.recognize)}
        case WindowTable():
            yield node.inner, (wanted & _all(node.inner)) | {node.time_column, *node.partition}
        case Over() if node.window.recognize is None:
            width = len(node.inner.fields)
            called = (function for place, function in enumerate(node.functions, width) if place in wanted)
            yield node.inner, (wanted & _all(node.inner)) | columns_called(node.window, called)
        case _:
            yield node.inner, _all(node.inner)


def _below_join(node: Join | AsofJoin, wanted: set[int]) -> _Wanted:
    width = len(node.left.fields)
    rest = node.rest if isinstance(node, Join) else None
    both = wanted | (_read([rest]) if rest is not None else set())
    lefts = [left for left, _ in node.keys] + ([node.band.left] if node.band is not None else [])
    rights = [right for _, right in node.keys] + ([node.band.right] if node.band is not None else [])
    if isinstance(node, AsofJoin) and node.when is not None:
        lefts.append(node.when)
    yield node.left, {index for index in both if index < width} | _read(lefts)
    yield node.right, {index - width for index in both if index >= width} | _read(rights)


def _read(expressions: Iterable[Expression]) -> set[int]:
    return {part.index for node in expressions for part in walk(node) if isinstance(part, Column)}
