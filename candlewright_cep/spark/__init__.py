"""MATCH_RECOGNIZE for Spark: over any DataFrame, batch or streaming, and in `spark.sql` of any session.

PySpark is imported by the functions that need it, not by this module: the matcher runs without it.
"""

from collections.abc import Mapping
from functools import wraps
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

__all__ = ["install", "match_recognize"]


def match_recognize(df: "DataFrame", sql: str, parameters: Mapping[str, Any] | None = None) -> "DataFrame":
    """The result of a Spark SQL text with MATCH_RECOGNIZE over `df`, which may be a stream.

    The text reads `df` under any name (`SELECT * FROM clicks MATCH_RECOGNIZE (...)`), or consists of the clause alone.
    Raises TriggerRejected with line and column for an invalid clause.
    """
    from candlewright_cep.spark.clauses import matches_in

    return matches_in(df, sql, parameters)


def install(spark: "SparkSession") -> "SparkSession":
    """From now on `spark.sql` accepts MATCH_RECOGNIZE over any table and view; other texts reach Spark unchanged."""
    from candlewright_cep.spark.clauses import frame_of
    from candlewright_cep.spark.statement import Statement

    stock = spark.sql
    if hasattr(stock, "unchanged"):
        return spark

    @wraps(stock)
    def sql(sqlQuery: str, args: Any = None, **kwargs: Any) -> "DataFrame":  # noqa: N803
        if "match_recognize" not in sqlQuery.lower() or Statement(sqlQuery).clause() is None:
            return stock(sqlQuery, args, **kwargs) if args is not None else stock(sqlQuery, **kwargs)
        if kwargs:
            raise TypeError("a text with MATCH_RECOGNIZE takes args={...}; give DataFrames a view to name them")
        return frame_of(spark, sqlQuery, args, run=stock)

    sql.unchanged = stock  # type: ignore[attr-defined]
    spark.sql = sql  # type: ignore[method-assign]
    return spark
