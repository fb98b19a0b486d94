"""FILTER (WHERE ...) after an aggregate."""

from dataclasses import replace

from candlewright_cep.functions.aggregates.aggregates import ORDERED, aggregate_name, written
from candlewright_cep.functions.aggregates.lists import KEPT_IF
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import CallNode, LiteralNode, Node, StarNode
from candlewright_cep.types import BIGINT, BOOLEAN, INT, NULL


def filtered(node: CallNode) -> CallNode:
    """An aggregate with FILTER rewritten without it: values of the other rows become NULL, which aggregates ignore.
    ARRAY_AGG does not, and takes the condition among its keys.
    """
    if node.filter is None:
        return node
    name = aggregate_name(node.name)
    if name is None:
        raise node.filter.at.reject(f"FILTER is not possible with {written(node.name)}")
    at = node.at
    arguments = list(node.arguments)
    if written(name) == "ARRAY_AGG":
        wanted = _chosen(node.filter, LiteralNode(True, BOOLEAN, at), at)
        further = (wanted, LiteralNode(KEPT_IF, INT, at))
        return replace(node, name=f"ARRAY_AGG{ORDERED}", arguments=(*arguments, *further), filter=None)
    if name == "COUNT" and (not arguments or isinstance(arguments[0], StarNode)):
        arguments = [LiteralNode(1, BIGINT, at)]
    place = 1 if name in ("MIN_BY", "MAX_BY") and len(arguments) > 1 else 0
    if arguments:
        arguments[place] = _chosen(node.filter, arguments[place], at)
    return replace(node, arguments=tuple(arguments), filter=None)


def _chosen(condition: Node, value: Node, at: Position) -> CallNode:
    """The value where the condition is true, else NULL."""
    return CallNode(name="CASE", arguments=(condition, value, LiteralNode(None, NULL, at)), at=at, is_operator=True)
