"""Texts that join inputs, or rows of different times, on a stream: which rows meet, and how long they are kept."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from candlewright_cep.binding.expressions import Column, Expression, conjuncts
from candlewright_cep.engine import CompiledQuery
from candlewright_cep.planning.bands import Band, bands_in
from candlewright_cep.planning.over import Over
from candlewright_cep.planning.periods import STATELESS, named_period
from candlewright_cep.planning.plans import AsofJoin, Join, Plan, Scan, Union
from candlewright_cep.streaming.inputs import Branch, KnownColumns, Leaf, Pair, StreamInput, equates
from candlewright_cep.streaming.query import StreamQuery, chain_of, check_anchors, ties_in, walked
from candlewright_cep.streaming.stages.stages import is_lookup
from candlewright_cep.syntax.tokens import BEGIN

_SECOND = 1_000_000_000


def joined_query(
    compiled: CompiledQuery,
    inputs: Mapping[str, StreamInput],
    nodes: Sequence[Plan],
    *,
    partitions_close: bool,
    period_seconds: int,
) -> StreamQuery:
    """`nodes`: the chain of the plan; `period_seconds`: for inputs that have periods, if the text names none. Raises
    TriggerRejected for a text that cannot run on a stream.
    """
    reader = _Reader(inputs, period_seconds)
    branch, _ = reader.branch(nodes)
    first, count = branch.first, len(list(branch.leaves()))
    if count > compiled.limits.joined_inputs:
        at = nodes[0].at if isinstance(nodes[0], Join | AsofJoin) else BEGIN
        raise at.reject(
            f"the text joins {count} inputs by time; {compiled.limits.joined_inputs} are allowed on a stream"
        )
    check_anchors(compiled, first.source, partitions_close=partitions_close, is_in_order=True)
    return StreamQuery(
        compiled=compiled,
        input_name=first.name,
        source=first.source,
        nodes=tuple(nodes),
        needs_merge=reader.merges,
        needs_ties=ties_in(nodes[1:]),
        joined=branch,
    )


@dataclass(slots=True)
class _Reader:
    """Reads a plan into branches. `merges`: an operator combines the rows of several tickers."""

    inputs: Mapping[str, StreamInput]
    period_seconds: int
    merges: bool = False

    def branch(self, nodes: Sequence[Plan]) -> tuple[Branch, KnownColumns]:
        bottom: Leaf | Pair
        node = nodes[0]
        if isinstance(node, Join | AsofJoin):
            bottom, known = self._pair(node)
        else:
            bottom, known = self._leaf(nodes)
        branch = Branch(bottom, tuple(nodes))
        operators = [node, *(part for part in nodes[1:] if not is_lookup(part))]
        known, merges = walked(operators, known, branch.first.source)
        self.merges |= merges
        return branch, known

    def _leaf(self, nodes: Sequence[Plan]) -> tuple[Leaf, KnownColumns]:
        scan = nodes[0]
        assert isinstance(scan, Scan)
        source = self.inputs[scan.name]
        names = source.schema.names
        known = KnownColumns(
            {names.index(name) for name in source.time_columns if name in names},
            {names.index(source.ticker_column)} if source.ticker_column in names else set(),
        )
        period = 0
        if source.period_column in names:
            period = named_period(nodes, names.index(source.period_column)) or self.period_seconds
        return Leaf(scan.name, source, period), known

    def _side(self, plan: Plan, join: Join | AsofJoin) -> tuple[Branch, KnownColumns]:
        at = join.at
        nodes = chain_of(plan)
        for node in nodes:
            if isinstance(node, Union):
                raise at.reject(
                    "a join of a UNION ALL is not possible on a stream", "register a trigger for each branch"
                )
            is_bottom = isinstance(node, Scan | Join | AsofJoin)
            if not is_bottom and not isinstance(node, (*STATELESS, Over)):
                raise at.reject(
                    "a join on a stream takes inputs with filters, expressions and OVER",
                    "join first, then aggregate or match",
                )
        branch, known = self.branch(nodes)
        leaf = branch.bottom
        if isinstance(leaf, Leaf) and leaf.source.period_column and not leaf.period:
            column = leaf.source.period_column
            # Conditions on one side in ON do not reduce the rows that a FULL join keeps.
            way = (
                f"FULL JOIN (SELECT * FROM {leaf.name} WHERE {column} = 60)"
                if join.kind == "FULL"
                else f"AND {leaf.name}.{column} = 60 in ON, with the table's alias"
            )
            raise at.reject(
                f"a join on a stream needs to know which {column} of {leaf.name} to use",
                f"{way}, or the parameter {column}",
            )
        return branch, known

    def _pair(self, node: Join | AsofJoin) -> tuple[Pair, KnownColumns]:
        if node.kind == "CROSS":
            raise node.at.reject(
                "a CROSS JOIN is not possible on a stream: it would keep every row",
                "ON a.ts BETWEEN b.ts - INTERVAL ... AND b.ts",
            )
        left, of_left = self._side(node.left, node)
        right, of_right = self._side(node.right, node)
        band = node.band
        if band is None or (isinstance(node, Join) and not _goes_by_time(band, of_left, of_right)):
            band = _equal_times(node, of_left, of_right) or band
        if band is None:
            hint = "ON ... AND b.ts BETWEEN a.ts - INTERVAL '5' SECOND AND a.ts, or ASOF JOIN"
            if _has_several_bands(node):
                hint = "give both bounds by one time, as in b.open_time + INTERVAL '60' SECOND instead of b.close_time"
            raise node.at.reject("a join on a stream uses event times, or it would keep every row", hint)
        shift = (
            _distance(band.left, of_left, left) - _distance(band.right, of_right, right)
            if _goes_by_time(band, of_left, of_right)
            else None
        )
        if shift is None:
            raise node.at.reject(
                "a join on a stream compares the event times of both sides",
                f"here {left.first.source.time_columns[0]} and {right.first.source.time_columns[0]}",
            )
        if band.upper is None:
            raise node.at.reject("a join on a stream needs a latest time of the right side", "AND b.ts <= a.ts")
        if band.lower is None and not (isinstance(node, AsofJoin) and node.is_backward):
            raise node.at.reject(
                "a join on a stream needs an earliest time of the right side, or it would keep every row",
                "AND b.ts >= a.ts - INTERVAL '5' SECOND",
            )
        by_ticker = equates(node.keys, of_left.tickers, of_right.tickers)
        self.merges |= not by_ticker
        lower = None if band.lower is None else band.lower + shift
        pair = Pair(node, left, right, lower, band.upper + shift, by_ticker)
        width = len(node.left.fields)
        known = KnownColumns(set(of_left.times), set(of_left.tickers), set(of_left.ends))
        if node.kind == "INNER":
            if pair.lower == pair.upper == 0:
                known.times |= {index + width for index in of_right.times}
            if by_ticker:
                known.tickers |= {index + width for index in of_right.tickers}
        if node.kind == "FULL":
            known = KnownColumns(set(), set())
        # A row without a partner has its time and ticker on one side only.
        times, tickers = (
            _products(of_left.times, of_right.times, width),
            _products(of_left.tickers, of_right.tickers, width),
        )
        known.either_times = times | {(other, one) for one, other in times if pair.lower == pair.upper == 0}
        known.either_tickers = tickers | {(other, one) for one, other in tickers} if by_ticker else set()
        return pair, known


def _has_several_bands(node: Join | AsofJoin) -> bool:
    """Whether conditions bound several times of a side, each from one end."""
    rest = node.rest if isinstance(node, Join) else None
    bands = [] if rest is None else [b for part in conjuncts(rest) for b in bands_in(part, len(node.left.fields))]
    return any(not band.is_of(bands[0]) for band in bands)


def _products(left: set[int], right: set[int], width: int) -> set[tuple[int, int]]:
    return {(one, other + width) for one in left for other in right}


def _goes_by_time(band: Band, left: KnownColumns, right: KnownColumns) -> bool:
    sides = (band.left, left), (band.right, right)
    return all(isinstance(part, Column) and part.index in known.times | known.ends for part, known in sides)


def _distance(part: Expression, known: KnownColumns, branch: Branch) -> int:
    """Nanoseconds from the event time of a row to the time in this column: 0, or the period if it is the end of a
    bar.
    """
    assert isinstance(part, Column)
    return 0 if part.index in known.times else branch.first.period * _SECOND


def _equal_times(node: Join | AsofJoin, left: KnownColumns, right: KnownColumns) -> Band | None:
    for one, other in node.keys:
        band = Band(one, other, 0, 0)
        if _goes_by_time(band, left, right):
            return band
    return None
