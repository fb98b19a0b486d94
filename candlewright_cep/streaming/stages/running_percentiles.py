"""APPROX_PERCENTILE over the whole past of a stream: for each partition, one sketch of each column."""

from base64 import b64decode, b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from candlewright_cep.binding.expressions import Constant, Expression, WindowFunction
from candlewright_cep.functions.aggregates.sketches import MissingPackage, Percentiles, sketch_class
from candlewright_cep.planning.over import Over
from candlewright_cep.types import Kind

APPROXIMATE = "APPROX_PERCENTILE"
#: The most of one operator. Each takes up to 60 kB of memory.
_MAX_SKETCHES = 10_000


def check_approximate(node: Over, function: WindowFunction) -> None:
    """Raises TriggerRejected for values that a double does not hold exactly, or without the package for sketches."""
    kind = function.arguments[0].type
    if kind.kind not in (Kind.DOUBLE, Kind.INT, Kind.NULL):
        raise node.at.reject(
            f"{APPROXIMATE} without a bound keeps values as DOUBLE, which does not hold every {kind} exactly",
            f"write {APPROXIMATE}(CAST(x AS DOUBLE), p)" if kind.is_numeric else "",
        )
    try:
        sketch_class()
    except MissingPackage:
        raise node.at.reject(
            f"{APPROXIMATE} without a bound needs sketches, which are not installed",
            "pip install 'candlewright-cep[sketches]'",
        ) from None


@dataclass(slots=True)
class Kept:
    """The percentiles of one column in one partition. `chunk`: the number of the chunk that holds `written`."""

    percentiles: Percentiles
    chunk: int = 0
    written: bytes = b""


class RunningPercentiles:
    """`columns`: the columns of which there are percentiles, and for each the functions over it, by index, with their
    fractions. The functions over one column share its sketch.
    """

    def __init__(self, functions: Sequence[WindowFunction]) -> None:
        columns: dict[Expression, list[tuple[int, float]]] = {}
        for index, function in enumerate(functions):
            if function.name == APPROXIMATE:
                column, part = function.arguments
                assert isinstance(part, Constant) and part.value is not None
                columns.setdefault(column, []).append((index, float(part.value)))
        self.columns = list(columns.items())
        self._last_chunk = 0

    @property
    def most_partitions(self) -> int:
        return _MAX_SKETCHES // max(1, len(self.columns))

    def new(self) -> list[Kept]:
        """The state of a partition."""
        return [Kept(Percentiles()) for _ in self.columns]

    def written(self, state: Sequence[Kept], chunks: dict[int, bytes] | None) -> list[tuple[int | str, str]]:
        """A partition's state for JSON. `chunks` gets what does not change with each feed, under numbers below 0;
        without it, that is in the result.
        """
        return [self._written(kept, chunks) for kept in state]

    def _written(self, kept: Kept, chunks: dict[int, bytes] | None) -> tuple[int | str, str]:
        written, newest = kept.percentiles.as_bytes()
        if chunks is None or not written:
            return b64encode(written).decode(), b64encode(newest).decode()
        if kept.written is not written:
            self._last_chunk -= 1
            kept.chunk, kept.written = self._last_chunk, written
        chunks[kept.chunk] = written
        return kept.chunk, b64encode(newest).decode()

    def read(self, state: Sequence[tuple[int | str, str]], chunks: Mapping[int, bytes]) -> list[Kept]:
        """The inverse of `written`. Raises ValueError if a chunk is missing."""
        return [self._read(*kept, chunks) for kept in state]

    def _read(self, written: int | str, newest: str, chunks: Mapping[int, bytes]) -> Kept:
        if isinstance(written, str):
            return Kept(Percentiles(b64decode(written), b64decode(newest)))
        if written not in chunks:
            raise ValueError(f"chunk {written} of a state is missing")
        self._last_chunk = min(self._last_chunk, written)
        return Kept(Percentiles(chunks[written], b64decode(newest)), written, chunks[written])
