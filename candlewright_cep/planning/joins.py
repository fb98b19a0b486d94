"""Turns the syntax of a join into its plan."""

from dataclasses import replace

from candlewright_cep.binding.binder import Binder, Field, Parameters, lookup
from candlewright_cep.binding.expressions import (
    Apply,
    Column,
    Constant,
    Expression,
    conjunction,
    conjuncts,
    rewrite,
)
from candlewright_cep.limits import Limits
from candlewright_cep.planning.bands import Band, bands_in, moved_right, side_of
from candlewright_cep.planning.plans import AsofJoin, Filter, Join, Plan, Project, Values
from candlewright_cep.syntax.tree import JoinNode, Node, ValuesNode
from candlewright_cep.types import Kind, SqlType, common
from candlewright_cep.vector import Vector, from_list


def join(node: JoinNode, left: Plan, right: Plan, *, parameters: Parameters, limits: Limits) -> Plan:
    """The join of two plans; raises TriggerRejected if they cannot be joined this way."""
    width = len(left.fields)
    if width + len(right.fields) > limits.columns:
        raise node.at.reject(f"the joined tables have more than {limits.columns} columns")
    if node.using:
        return _join_using(node, left, right, limits)
    parts: list[Expression] = []
    if node.condition is not None:
        binder = Binder((*left.fields, *right.fields), parameters, limits)
        parts = conjuncts(binder.condition(node.condition, "ON"))
    if node.is_asof:
        return _asof(node, left, right, parts)
    keys, others = _with_keys(parts, width)
    band, rest = _with_band(others, width)
    if node.kind in ("INNER", "LEFT"):
        wanted = [moved_right(part, width) for part in rest if side_of(part, width) is False]
        right = _filtered(right, wanted)
        rest = [part for part in rest if side_of(part, width) is not False]
    if node.kind in ("INNER", "RIGHT"):
        left = _filtered(left, [part for part in rest if side_of(part, width) is True])
        rest = [part for part in rest if side_of(part, width) is not True]
    if rest and node.kind in ("LEFT", "RIGHT", "FULL") and not keys and band is None:
        raise node.at.reject(
            f"{node.kind} JOIN needs an equality of columns in ON, or a condition that one time is between two others"
        )
    return Join(
        kind=node.kind,
        left=left,
        right=right,
        keys=tuple(keys),
        rest=conjunction(rest),
        limits=limits,
        at=node.at,
        band=band,
    )


def turned(join: Join) -> Project:
    """The same rows with the sides exchanged, in another order: a RIGHT join becomes a LEFT join."""
    width, further = len(join.left.fields), len(join.right.fields)

    def moved(part: Expression) -> Expression | None:
        if not isinstance(part, Column):
            return None
        return Column(part.index + further if part.index < width else part.index - width, part.type)

    other = replace(
        join,
        kind={"LEFT": "RIGHT", "RIGHT": "LEFT"}.get(join.kind, join.kind),
        left=join.right,
        right=join.left,
        keys=tuple((one, other) for other, one in join.keys),
        rest=None if join.rest is None else rewrite(join.rest, moved),
        band=None if join.band is None else join.band.turned(),
    )
    places = [*range(further, further + width), *range(further)]
    columns = tuple(Column(place, field.type) for place, field in zip(places, join.fields, strict=True))
    return Project(other, columns, join.fields)


def _with_keys(parts: list[Expression], width: int) -> tuple[list[tuple[Expression, Expression]], list[Expression]]:
    """The equalities between the two sides, and the other conditions."""
    keys: list[tuple[Expression, Expression]] = []
    rest: list[Expression] = []
    for part in parts:
        pair = _key_pair(part, width)
        if pair is not None:
            keys.append(pair)
        else:
            rest.append(part)
    return keys, rest


def _with_band(parts: list[Expression], width: int) -> tuple[Band | None, list[Expression]]:
    """The first lower and the first upper bound that conditions set for one pair of times; and the other conditions."""
    by_pair: list[tuple[Band, list[Expression]]] = []
    for part in parts:
        for band in bands_in(part, width):
            known = next((place for place, (other, _) in enumerate(by_pair) if other.is_of(band)), None)
            if known is None:
                by_pair.append((band, [part]))
            else:
                other, sources = by_pair[known]
                by_pair[known] = other.narrowed(band), [*sources, part]
    by_pair.sort(key=lambda pair: pair[0].right.type.kind is not Kind.TIMESTAMP)
    for band, sources in by_pair:
        if band.lower is not None and band.upper is not None and _said(band, sources, width):
            return band, [part for part in parts if not any(part is source for source in sources)]
    return None, parts


def _said(band: Band, sources: list[Expression], width: int) -> bool:
    """Whether the band expresses its conditions completely: BETWEEN may compare with two different times."""
    return all(found.is_of(band) for part in sources for found in bands_in(part, width))


def _asof(node: JoinNode, left: Plan, right: Plan, parts: list[Expression]) -> Plan:
    """An ASOF join. Conditions on the right side alone select the rows that are searched."""
    width = len(left.fields)
    keys, others = _with_keys(parts, width)
    band: Band | None = None
    is_backward = True
    when: list[Expression] = []
    wanted: list[Expression] = []
    for part in others:
        found = bands_in(part, width)
        side = side_of(part, width)
        if found and all(other.is_of(band or found[0]) for other in found):
            if band is None:
                is_backward = found[0].upper is not None or len(found) > 1
            for other in found:
                band = other if band is None else band.narrowed(other)
        elif side is True:
            when.append(part)
        elif side is False:
            wanted.append(moved_right(part, width))
        else:
            raise node.at.reject(
                "ASOF JOIN takes equalities, one comparison of two times, at most one bound on their distance, and "
                "conditions on one side",
                "put other conditions in WHERE",
            )
    if node.kind == "INNER":
        left, when = _filtered(left, when), []
    if band is None:
        raise node.at.reject("ASOF JOIN needs a comparison of two times in ON", "AND a.ts >= b.ts")
    return AsofJoin(
        kind=node.kind,
        left=left,
        right=_filtered(right, wanted),
        keys=tuple(keys),
        band=band,
        is_backward=is_backward,
        when=conjunction(when),
        at=node.at,
    )


def _filtered(plan: Plan, conditions: list[Expression]) -> Plan:
    condition = conjunction(conditions)
    return plan if condition is None else Filter(plan, condition)


def filtered_early(source: Plan, condition: Expression) -> Plan:
    """A join whose sides are filtered early by the parts of WHERE that apply to them; WHERE keeps its whole
    condition.
    """
    if not isinstance(source, Join | AsofJoin) or source.kind not in ("INNER", "LEFT", "RIGHT"):
        return source
    width = len(source.left.fields)
    parts = conjuncts(condition)
    of_left = conjunction([part for part in parts if side_of(part, width) is True and source.kind != "RIGHT"])
    left = source.left
    if of_left is not None:
        left = Filter(filtered_early(left, of_left), of_left)
    wanted: list[Expression] = []
    if source.kind in ("INNER", "RIGHT") and isinstance(source, Join):
        wanted = [moved_right(part, width) for part in parts if side_of(part, width) is False]
    return replace(source, left=left, right=_filtered(source.right, wanted))


def values(node: ValuesNode, parameters: Parameters, limits: Limits) -> Plan:
    """A table of constants; the type of a column is the common type of its values."""
    binder = Binder((), parameters, limits)
    width = len(node.rows[0])
    for row in node.rows:
        if len(row) != width:
            raise row[0].at.reject(f"this row of VALUES has {len(row)} values, the first one {width}")
    if len(node.rows) * width > limits.columns:
        raise node.at.reject(f"VALUES has more than {limits.columns} values", "put them in a table, and join it")
    columns = [_column([row[place] for row in node.rows], place, binder) for place in range(width)]
    alias = node.alias.text if node.alias is not None else ""
    if node.columns and len(node.columns) != width:
        raise node.columns[0].at.reject(f"{len(node.columns)} names for {width} columns")
    names = [name.text for name in node.columns] or [f"col{place}" for place in range(width)]
    fields = tuple(Field(name, column.type, alias) for name, column in zip(names, columns, strict=True))
    return Values(tuple(columns), fields)


def _column(written: list[Node], place: int, binder: Binder) -> Vector:
    bound = [binder.bind(part) for part in written]
    kind = bound[0].type
    for part, node in zip(bound, written, strict=True):
        if not isinstance(part, Constant):
            raise node.at.reject("VALUES takes constants and parameters")
        wider = common(kind, part.type)
        if wider is None:
            raise node.at.reject(f"column {place + 1} of VALUES has the types {kind} and {part.type}")
        kind = wider
    found = [binder.converted(part, kind, node.at) for part, node in zip(bound, written, strict=True)]
    return from_list(kind, [part.value if isinstance(part, Constant) else None for part in found])


def _join_using(node: JoinNode, left: Plan, right: Plan, limits: Limits) -> Plan:
    keys: list[tuple[Expression, Expression]] = []
    width = len(left.fields)
    shared: list[int] = []
    for name in node.using:
        one, other = lookup(left.fields, name, None), lookup(right.fields, name, None)
        if one is None or other is None:
            raise name.at.reject(f"the column '{name.text[:60]}' is not on both sides of the join")
        kind = common(left.fields[one].type, right.fields[other].type)
        if kind is None:
            raise name.at.reject(f"the column '{name.text[:60]}' has different types on both sides")
        keys.append((_converted(Column(one, left.fields[one].type), kind),
                     _converted(Column(other, right.fields[other].type), kind)))  # fmt: skip
        shared.append(width + other)
    plan = Join(kind=node.kind, left=left, right=right, keys=tuple(keys), rest=None, limits=limits, at=node.at)
    # The shared columns are found once by name; their value is that of whichever side has one.
    expressions: list[Expression] = []
    fields: list[Field] = []
    for name, place in zip(node.using, shared, strict=True):
        one_index = lookup(left.fields, name, None) or 0
        one_column = Column(one_index, plan.fields[one_index].type)
        other_column = Column(place, plan.fields[place].type)
        kind = common(one_column.type, other_column.type) or one_column.type
        both = (_converted(one_column, kind), _converted(other_column, kind))
        expressions.append(Apply("COALESCE", both, kind))
        fields.append(Field(plan.fields[one_index].name, kind))
    for index, field in enumerate(plan.fields):
        expressions.append(Column(index, field.type))
        hidden = field.hidden or any(field.name.lower() == name.text.lower() for name in node.using)
        fields.append(Field(field.name, field.type, field.qualifier, hidden))
    return Project(plan, tuple(expressions), tuple(fields))


def _converted(column: Column, kind: SqlType) -> Expression:
    return column if column.type == kind else Apply("CAST", (column,), kind)


def with_keys_of(source: Plan, condition: Expression) -> Plan:
    """FROM a, b WHERE a.x = b.x becomes a join on x; conditions between times become an interval join."""
    if not isinstance(source, Join) or source.kind not in ("CROSS", "INNER"):
        return source
    width = len(source.left.fields)
    found, others = _with_keys(conjuncts(condition), width)
    keys = (*source.keys, *found)
    band = source.band or _with_band(others, width)[0]
    return replace(source, kind="INNER" if keys or band else source.kind, keys=keys, band=band)


def _key_pair(part: Expression, width: int) -> tuple[Expression, Expression] | None:
    """The two sides of an equality if each of them reads one input."""
    if not isinstance(part, Apply) or part.function != "=":
        return None
    left, right = part.arguments
    sides = side_of(left, width), side_of(right, width)
    if None in sides or sides[0] == sides[1]:
        return None
    first, second = (left, right) if sides[0] else (right, left)
    return first, moved_right(second, width)
