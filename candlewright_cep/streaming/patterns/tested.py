"""The rows of one batch that a pattern's conditions are tested on, and the values that path conditions read at them."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from candlewright_cep.binding.evaluation import Bounds, RowValues
from candlewright_cep.functions.scalars.arrays import cells
from candlewright_cep.matching.conditions import PathCode
from candlewright_cep.matching.foresight import Foresight
from candlewright_cep.matching.path_values import PathValues
from candlewright_cep.streaming.patterns.match_partition import Partition
from candlewright_cep.streaming.rows.release import Rows
from candlewright_cep.vector import Array, Index, Vector

__all__ = ["PathBatch", "Tested"]


@dataclass(frozen=True, slots=True)
class Tested:
    """The rows to test. `places`: their indexes among all rows, None if they are all of them; `moved`: the shift
    between the two, for each partition.
    """

    rows: Rows
    bounds: Bounds
    places: Index | None
    moved: Index

    def placed(self, values: Array, length: int) -> Array:
        """The values at the rows' indexes among all rows; 0 for the others."""
        found = np.zeros(length, values.dtype)
        found[self.places] = values
        return found


@dataclass(slots=True)
class PathBatch:
    """The values that path conditions read at the tested rows of one batch. `masks` and `times` cover all its rows."""

    path: PathCode | None
    foresight: Foresight | None
    lists: list[list[Any]]
    columns: list[Vector]
    masks: Array
    times: Array

    @staticmethod
    def of(
        path: PathCode | None, foresight: Foresight | None, values: RowValues, *, masks: Array, times: Array
    ) -> "PathBatch":
        lists = [] if path is None else [cells(values.value(node)) for node in path.hoisted]
        columns = [] if foresight is None else [values.value(node).expand() for node in foresight.columns]
        return PathBatch(path, foresight, lists, columns, masks, times)

    def bind(self, part: Partition, own: PathValues, shift: int, *, moved: int) -> None:
        """Give a partition's search the values of its new rows. Row `r` of the partition is row `r + shift` of the
        batch and `r + shift - moved` of the tested rows.
        """
        low, high = own.end + shift - moved, part.tested + shift - moved
        own.add(
            [values[low:high] for values in self.lists],
            [column.slice(low, high - low) for column in self.columns],
            np.array(part.masks[own.end - own.first :], np.int64),
            times=self.times[low + moved : high + moved],
        )
        part.search.prospects = own.prospects
        if self.path is not None:
            part.search.trials, known = self.path.make(own.lists, own.first)
            if own.prospects is not None:
                own.prospects.known = known
