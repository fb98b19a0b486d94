"""From the syntax of a join to its plan."""

from dataclasses import replace

from candlewright_cep.binding.binder import Binder, Field, Parameters, lookup
from candlewright_cep.binding.expressions import Apply, Column, Expression, conjuncts, rewrite, walk
from candlewright_cep.limits import Limits
from candlewright_cep.planning.plans import Join, Plan, Project
from candlewright_cep.syntax.tree import JoinNode
from candlewright_cep.types import BOOLEAN, SqlType, common


def join(node: JoinNode, left: Plan, right: Plan, parameters: Parameters, limits: Limits) -> Plan:
    """Of the plans of both sides; raises TriggerRejected where they cannot be joined so."""
    width = len(left.fields)
    if width + len(right.fields) > limits.columns:
        raise node.at.reject(f"the joined tables have more than {limits.columns} columns")
    if node.using:
        return _join_using(node, left, right, limits)
    keys: list[tuple[Expression, Expression]] = []
    rest: list[Expression] = []
    if node.condition is not None:
        binder = Binder((*left.fields, *right.fields), parameters, limits)
        bound = binder.condition(node.condition, "ON")
        for part in bound.arguments if isinstance(bound, Apply) and bound.function == "AND" else (bound,):
            pair = _key_pair(part, width)
            if pair is not None:
                keys.append(pair)
            else:
                rest.append(part)
    if rest and node.kind in ("LEFT", "RIGHT", "FULL") and not keys:
        raise node.at.reject(f"{node.kind} JOIN needs an equality of columns in ON")
    together = None if not rest else rest[0] if len(rest) == 1 else Apply("AND", tuple(rest), BOOLEAN)
    return Join(node.kind, left, right, tuple(keys), together, limits, node.at)


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
    plan = Join(node.kind, left, right, tuple(keys), None, limits, node.at)
    # The shared columns answer once, with whichever side has a value.
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
    """FROM a, b WHERE a.x = b.x is a join on x."""
    if not isinstance(source, Join) or source.kind not in ("CROSS", "INNER"):
        return source
    width = len(source.left.fields)
    found = (_key_pair(part, width) for part in conjuncts(condition))
    keys = (*source.keys, *(pair for pair in found if pair is not None))
    return replace(source, kind="INNER" if keys else source.kind, keys=keys)


def _key_pair(part: Expression, width: int) -> tuple[Expression, Expression] | None:
    """The two sides of an equality whose sides use one input each."""
    if not isinstance(part, Apply) or part.function != "=":
        return None
    left, right = part.arguments
    sides = []
    for side in (left, right):
        used = {inner.index < width for inner in walk(side) if isinstance(inner, Column)}
        if len(used) != 1:
            return None
        sides.append(used.pop())
    if sides[0] == sides[1]:
        return None
    first, second = (left, right) if sides[0] else (right, left)

    def moved(inner: Expression) -> Expression | None:
        return Column(inner.index - width, inner.type) if isinstance(inner, Column) else None

    return first, rewrite(second, moved)
