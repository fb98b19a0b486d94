"""Which columns of its input a running trigger reads, so that the others need not be made."""

from collections.abc import Iterable, Sequence

from cep.expressions import Column, Expression, walk
from cep.match_stream import columns_of
from cep.plans import Filter, Match, Plan, Project, Renamed, Scan
from cep.slots import FIRST_SLOT

__all__ = ["columns_read"]


def columns_read(nodes: Sequence[Plan]) -> frozenset[str] | None:
    """Names in the input that the chain of `nodes` begins with; None for all of them, also where it is not known."""
    found: set[int] = set()
    for node in nodes:
        match node:
            case Scan() | Renamed():
                continue
            case Filter():
                found |= _read([node.condition])
            case Project() | Match():
                # Nothing behind these sees the input.
                found |= _read(node.expressions) if isinstance(node, Project) else columns_of(node.recognize)
                return frozenset(nodes[0].fields[index].name for index in found if index < FIRST_SLOT)
            case _:
                return None
    return None


def _read(expressions: Iterable[Expression]) -> set[int]:
    return {part.index for node in expressions for part in walk(node) if isinstance(part, Column)}
