"""Functions that are another function in a different form."""

import math

from candlewright_cep.syntax.tree import CallNode, LiteralNode, Node
from candlewright_cep.types import BIGINT, DATE, DOUBLE, STRING, timestamp


def rewritten(node: CallNode) -> Node | None:
    """Rewrites functions that are another function in a different form."""
    name, arguments, at = node.name, node.arguments, node.at

    def literal(value: int | str) -> LiteralNode:
        return LiteralNode(value, STRING if isinstance(value, str) else BIGINT, at)

    if not arguments and name in ("PI", "E", "INFINITY", "NAN"):
        return LiteralNode({"PI": math.pi, "E": math.e, "INFINITY": math.inf, "NAN": math.nan}[name], DOUBLE, at)
    if len(arguments) == 1 and name in _CASTS:
        return CallNode(name="CAST", arguments=arguments, at=at, type=_CASTS[name], is_operator=True)
    if len(arguments) == 1 and name == "UNIX_TIMESTAMP":
        time = CallNode(name="CAST", arguments=arguments, at=at, type=timestamp("ms"), is_operator=True)
        return CallNode(name="EXTRACT", arguments=(literal("EPOCH"), time), at=at)
    if len(arguments) == 1 and name == "DAYOFWEEK":
        # Counted from Sunday = 1; DAY_OF_WEEK and EXTRACT count from Monday.
        day = CallNode(name="DAY_OF_WEEK", arguments=arguments, at=at)
        return CallNode(
            name="+",
            arguments=(
                CallNode(name="%", arguments=(day, literal(7)), at=at, type=None, mode="", is_operator=True),
                literal(1),
            ),
            at=at,
            type=None,
            mode="",
            is_operator=True,
        )
    if len(arguments) == 2 and name == "LOCATE":
        return CallNode(name="STRPOS", arguments=(arguments[1], arguments[0]), at=at)
    if len(arguments) == 3 and name == "SPLIT_INDEX":
        # Counted from 0; SPLIT_PART counts from 1.
        number = CallNode(name="+", arguments=(arguments[2], literal(1)), at=at, is_operator=True)
        return CallNode(name="SPLIT_PART", arguments=(*arguments[:2], number), at=at)
    if len(arguments) == 2 and name == "TO_TIMESTAMP_LTZ" and isinstance(arguments[1], LiteralNode):
        scale = {0: 1.0, 3: 1000.0}.get(arguments[1].value)
        if scale is None:
            raise arguments[1].at.reject("the precision of TO_TIMESTAMP_LTZ is 0 (seconds) or 3 (milliseconds)")
        divided = CallNode(name="/", arguments=(arguments[0], LiteralNode(scale, DOUBLE, at)), at=at, is_operator=True)
        return CallNode(name="FROM_UNIXTIME", arguments=(divided,), at=at)
    return None


_CASTS = {
    "TO_TIMESTAMP": timestamp("ms"),
    "FROM_ISO8601_TIMESTAMP": timestamp("ms", "UTC"),
    "TO_DATE": DATE,
    "DATE": DATE,
    "FROM_ISO8601_DATE": DATE,
}
