"""CROSS JOIN UNNEST: each row once for every value of its array."""

from dataclasses import dataclass

import numpy as np

from candlewright_cep import work
from candlewright_cep.binding.binder import Field
from candlewright_cep.binding.expressions import Expression
from candlewright_cep.functions.scalars.arrays import opened
from candlewright_cep.limits import Limits
from candlewright_cep.planning.plans import Inputs, Plan
from candlewright_cep.planning.relation import Relation
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.types import BIGINT
from candlewright_cep.vector import Index, Vector


@dataclass(kw_only=True, frozen=True, slots=True)
class Unnest:
    """`is_outer`: a row whose array is empty or NULL is kept, with NULL. `is_numbered`: a further column numbers the
    values of each array from 1.
    """

    inner: Plan
    array: Expression
    is_outer: bool
    is_numbered: bool
    fields: tuple[Field, ...]
    limits: Limits
    at: Position

    def run(self, inputs: Inputs) -> Relation:
        return self.expanded(self.inner.run(inputs))[0]

    def expanded(self, rows: Relation) -> tuple[Relation, Index]:
        """The rows, and the row of the input that each comes from."""
        items, firsts, sizes = opened(rows.values().value(self.array))
        counts = np.maximum(sizes, 1) if self.is_outer else sizes
        total = int(counts.sum())
        if total > self.limits.joined_rows:
            raise self.at.reject(f"UNNEST makes {total} rows; {self.limits.joined_rows} are allowed")
        work.spend(total)
        picked: Index = np.repeat(np.arange(rows.length, dtype=np.int64), counts)
        place = np.arange(total, dtype=np.int64) - np.repeat(np.cumsum(counts) - counts, counts)
        is_there = place < sizes[picked]
        found = [items.take(np.where(is_there, firsts[picked] + place, -1))]
        if self.is_numbered:
            found.append(Vector(BIGINT, place + 1, None if is_there.all() else is_there))
        return rows.take(picked).with_columns(found), picked
