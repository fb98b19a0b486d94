"""Finds the tables that a query names."""

from collections.abc import Iterator
from dataclasses import fields, is_dataclass, replace
from typing import Any

from candlewright_cep.syntax.tree import QueryNode, TableNode

__all__ = ["table_names"]


def table_names(node: Any, defined: frozenset[str] = frozenset()) -> Iterator[str]:
    """The names of the tables and views that a tree reads, without those that its WITH queries define; in lower case,
    possibly several times.
    """
    if isinstance(node, TableNode):
        if node.name.text.lower() not in defined:
            yield node.name.text.lower()
        return
    if isinstance(node, QueryNode):
        for table, _, query in node.tables:
            yield from table_names(query, defined)
            defined |= {table.text.lower()}
        node = replace(node, tables=())
    if is_dataclass(node):
        for part in fields(node):
            yield from table_names(getattr(node, part.name), defined)
    elif isinstance(node, tuple):
        for each in node:
            yield from table_names(each, defined)
