"""Which running triggers may miss rows: what can be decided about their conditions before they are fed."""

from collections.abc import Sequence
from itertools import takewhile

from candlewright_cep.binding.expressions import (
    FIRST_SLOT,
    Column,
    Expression,
    Shift,
    conjunction,
    is_slot,
    rewrite,
)
from candlewright_cep.matching.glance import Glance
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.periods import STATELESS
from candlewright_cep.planning.plans import Filter, Match, Narrowed, Plan, Project, Renamed, Scan
from candlewright_cep.streaming.query import StreamQuery

__all__ = ["glance_of"]


def glance_of(query: StreamQuery) -> Glance | None:
    """Tells whether new rows can matter to a query; None if only feeding them shows that. The only operator for which
    the order of rows matters must be a pattern, or LAG alone over the rows of the input.
    """
    if query.joined is not None or query.needs_merge or query.needs_ties or not query.is_in_order:
        return None
    nodes = query.nodes
    places = [place for place, node in enumerate(nodes) if not isinstance(node, (Scan, *STATELESS))]
    if len(places) != 1:
        return None
    place = places[0]
    node, before = nodes[place], nodes[:place]
    alone = (query.source.schema.names.index(query.source.ticker_column),)
    is_on_input = all(isinstance(each, Scan | Renamed) for each in before)
    if isinstance(node, Match):
        return _of_pattern(query, node, before, alone=alone, is_on_input=is_on_input)
    # LAG finds the preceding row by time, even among older rows.
    is_by_ticker = isinstance(node, Over) and is_on_input and node.window.partition == alone
    if isinstance(node, Over) and is_by_ticker and not query.partitions_close:
        return _of_rows(query, node, nodes[place + 1 :])
    return None


def _of_pattern(
    query: StreamQuery, node: Match, before: Sequence[Plan], *, alone: tuple[int, ...], is_on_input: bool
) -> Glance | None:
    plan, types = node.recognize, query.slot_types
    if is_on_input:
        return Glance.of(plan, types) if plan.partition == alone else None
    columns: list[Expression] = []
    filters: list[Expression] = []

    def seen(expression: Expression) -> Expression:
        return rewrite(
            expression, lambda part: columns[part.index] if isinstance(part, Column) and not is_slot(part) else None
        )

    for each in before:
        if isinstance(each, Filter):
            filters.append(seen(each.condition))
        elif isinstance(each, Project):
            columns = [seen(part) for part in each.expressions]
        elif isinstance(each, Scan):
            columns = [Column(place, part.type) for place, part in enumerate(each.fields)]
        elif isinstance(each, Narrowed):
            columns = columns[: each.width]
        elif not isinstance(each, Renamed):
            return None
    keys = [columns[place] for place in plan.partition]
    is_alone = len(keys) == 1 and isinstance(keys[0], Column) and (keys[0].index,) == alone
    return Glance.of(plan, types, seen=seen, filters=filters) if is_alone else None


def _of_rows(query: StreamQuery, node: Over, after: Sequence[Plan]) -> Glance | None:
    """For rows that a condition selects by earlier ones, with LAG."""
    filters = takewhile(lambda each: isinstance(each, Filter), after)
    condition = conjunction([each.condition for each in filters if isinstance(each, Filter)])
    shifts = _shifts(node)
    if not shifts or condition is None:
        return None
    width = len(node.inner.fields)

    def change(part: Expression) -> Expression | None:
        is_lag = isinstance(part, Column) and width <= part.index < FIRST_SLOT
        return shifts[part.index - width] if isinstance(part, Column) and is_lag else None

    lookback = max(-shift.delta for shift in shifts)
    return Glance.of_rows(rewrite(condition, change), lookback, query.slot_types)


def _shifts(node: Over) -> list[Shift]:
    """The functions as expressions over the input, if each is a LAG without a default."""
    found = [
        Shift(function.arguments[0], -function.offset)
        for function in node.functions
        if function.name == "LAG" and len(function.arguments) == 1 and not function.ignores_nulls
    ]
    is_whole = len(found) == len(node.functions) and not node.measures and node.window.recognize is None
    return found if is_whole else []
