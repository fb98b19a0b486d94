"""What an executor does for a query in the trigger language: it evaluates the query over the rows of some keys. Imports
no Spark.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import pyarrow as pa
import pyarrow.compute as pc

from candlewright_cep.engine import CompiledQuery, compile_query
from candlewright_cep.planning.partitions import divided, with_input
from candlewright_cep.planning.plans import Renamed
from candlewright_cep.spark.groups import BUNCH_ROWS, OUTPUT_ROWS, Task, bunches, in_order, in_types
from candlewright_cep.types import to_arrow

__all__ = ["BELOW", "Checked", "Evaluation", "above", "below", "evaluator"]

#: The name under which the rest of a query reads the results of the part below.
BELOW = "rows"


@dataclass(kw_only=True, frozen=True, slots=True)
class Checked:
    """A query, what it can read, and the texts of registered views. It is compiled again wherever it is used."""

    text: str
    schemas: Mapping[str, pa.Schema]
    views: Mapping[str, str] = field(default_factory=dict)
    parameters: Mapping[str, str] = field(default_factory=dict)

    def compiled(self) -> CompiledQuery:
        """Raises TriggerRejected."""
        first = next(iter(self.schemas), "")
        return compile_query(
            self.text, self.schemas, self.parameters, default_table=first, is_stored=True, views=self.views
        )


@dataclass(kw_only=True, frozen=True, slots=True)
class Evaluation:
    """A query, or one of two parts of its plan (`below` and `above`), for the executors.

    `read`: the columns that are read of each input; `keys`: how many columns divide the rows; `is_row_by_row`: any rows
    can be evaluated without the others; `types`: Spark's types of the result's columns; `numbered`: see `Recognition`.

    The rows of all inputs come together: the column `input` has the place of each row's input in `read`, whose columns
    are a structure `t0`, `t1` and so on. The keys are `k0`, `k1` and so on.
    """

    query: Checked
    read: Mapping[str, tuple[str, ...]]
    types: tuple[pa.DataType, ...]
    part: str = ""
    keys: int = 0
    is_row_by_row: bool = False
    numbered: str = ""

    def inputs(self, rows: pa.Table, schemas: Mapping[str, pa.Schema]) -> dict[str, pa.Table]:
        """The rows of each input, in a definite order. Columns that nothing reads are NULL."""
        found = {}
        for place, (name, columns) in enumerate(self.read.items()):
            mine = rows.column(f"t{place}").filter(pc.equal(rows.column("input"), place)).combine_chunks()
            kept = pa.table(mine.flatten(), list(columns))
            times = [column for column in columns if pa.types.is_timestamp(kept.schema.field(column).type)]
            kept = in_order(kept, times[0] if times else "", self.numbered)
            arrays = [
                kept.column(part.name).cast(part.type) if part.name in columns else pa.nulls(len(kept), part.type)
                for part in schemas[name]
            ]
            found[name] = pa.table(arrays, schemas[name])
        return found


def evaluator(plan: Evaluation) -> Task:
    """A function for `mapInArrow` over rows that are sorted by the keys, with the rows of each key complete."""

    def run(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        compiled, schemas = plan.query.compiled(), plan.query.schemas
        if plan.part == "below":
            compiled = below(compiled)
        elif plan.part == "above":
            schemas = {BELOW: pa.schema([(name, to_arrow(kind)) for name, kind in below(compiled).columns])}
            compiled = above(compiled)
        keys = [f"k{place}" for place in range(plan.keys)]
        tables = (pa.table(batch) for batch in batches) if plan.is_row_by_row else bunches(batches, keys, BUNCH_ROWS)
        for rows in tables:
            found = compiled.run(plan.inputs(rows, schemas))
            yield from in_types(found, plan.types).to_batches(max_chunksize=OUTPUT_ROWS)

    return run


def below(whole: CompiledQuery) -> CompiledQuery:
    """The part of a query that can be divided; its columns are c0, c1 and so on, hidden ones included."""
    plan, _ = divided(whole.plan)
    fields = tuple(replace(part, name=f"c{place}", hidden=False) for place, part in enumerate(plan.fields))
    return replace(whole, plan=Renamed(plan, fields), columns=tuple((part.name, part.type) for part in fields))


def above(whole: CompiledQuery) -> CompiledQuery:
    """The rest of a query, which reads the results of the part below as the input BELOW."""
    return replace(whole, plan=with_input(whole.plan, divided(whole.plan)[0], BELOW))
