"""The trigger engine's library entry under the name that users import; the engine itself is free of Spark."""

from collections.abc import Mapping

import pyarrow as pa

from candlewright_cep.engine import evaluate_named

__all__ = ["evaluate"]


def evaluate(
    sql: str,
    tables: pa.Table | Mapping[str, pa.Table | str] | None = None,
    table_name: str = "ticks",
    parameters: Mapping[str, str] | None = None,
    *,
    table: pa.Table | None = None,
) -> pa.Table:
    """The rows that a trigger's text returns over one table, called `table_name`, or over tables by name; a string
    instead of a table is a view.

    `table`: the former name of `tables`. Raises TriggerRejected, whose text begins `INVALID_SQL line:column:`.
    """
    given = table if tables is None else tables
    if given is None:
        raise TypeError("evaluate needs a table, or a mapping of names to tables")
    named = given if isinstance(given, Mapping) else {table_name: given}
    return evaluate_named(sql, named, parameters, table_name=table_name)
