"""The available functions. Their modules are imported when a task begins, not to answer what they are."""

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from gateways.kapacitor.function import DURATION, STRING, Function, Options
from gateways.kapacitor.session import FunctionKind
from protobuf.udf_superset_pb2 import ValueType

if TYPE_CHECKING:
    from bus.api import Bus

__all__ = ["NAMES", "function_named"]

_OPTIONS: Mapping[str, Mapping[str, Sequence[ValueType]]] = {
    "ohlc": {
        "period": (DURATION,),
        "price": (STRING,),
        "volume": (STRING,),
        "as": (STRING,),
        "lateness": (DURATION,),
        "flush": (DURATION,),
        "window": (DURATION,),
    },
    "match": {
        "sql": (STRING,),
        "rule": (STRING,),
        "parameter": (STRING, STRING),
        "table": (STRING,),
        "column": (STRING, STRING),
        "double": (STRING,),
        "int": (STRING,),
        "string": (STRING,),
        "bool": (STRING,),
        "as": (STRING,),
        "lateness": (DURATION,),
    },
    "publish": {
        "topic": (STRING,),
        "ticker": (STRING,),
        "price": (STRING,),
        "volume": (STRING,),
        "side": (STRING,),
        "id": (STRING,),
        "period": (DURATION,),
        "key": (STRING,),
    },
}
NAMES = tuple(_OPTIONS)


def function_named(
    name: str, open_bus: Callable[[], "Bus"], max_ahead_ns: Callable[[], int] | None = None
) -> FunctionKind:
    """`open_bus`: for tasks that publish or name a registered trigger; called when one begins. `max_ahead_ns`: the
    value of `ticks.max_ahead_seconds`.
    """

    def make(options: Options, *, is_batch: bool) -> Function:
        if name == "ohlc":
            from gateways.kapacitor import ohlc

            return ohlc.make(options, is_batch=is_batch)
        if name == "match":
            from gateways.kapacitor import match

            return match.make(open_bus, options, is_batch=is_batch)
        from gateways.kapacitor import publish

        bound_ns = publish.MAX_AHEAD_NS if max_ahead_ns is None else max_ahead_ns()
        return publish.make(open_bus, options, is_batch=is_batch, max_ahead_ns=bound_ns)

    return FunctionKind(name, _OPTIONS[name], make)
