"""The operator of Spark 4's `transformWithStateInPandas`."""

from collections.abc import Iterator
from typing import Any

import pandas
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from candlewright_cep.spark.pieces import ROWS, Piece, advance, report

__all__ = ["Matcher"]


class Matcher(StatefulProcessor):
    """Finds the matches of one bucket. While something waits, a timer calls it whenever the watermark has moved."""

    def __init__(self, piece: Piece) -> None:
        self._piece = piece

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._handle = handle
        self._state = handle.getValueState("state", "state binary")

    def handleInputRows(  # noqa: N802
        self,
        key: Any,
        rows: Iterator[pandas.DataFrame],
        timerValues: Any,  # noqa: N803
    ) -> Iterator[pandas.DataFrame]:
        yield self._step([bytes(packed) for batch in rows for packed in batch[ROWS]], timerValues)

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pandas.DataFrame]:  # noqa: N802, N803
        yield self._step([], timerValues)

    def close(self) -> None:
        pass

    def _step(self, packed: list[bytes], timers: Any) -> pandas.DataFrame:
        watermark = max(timers.getCurrentWatermarkInMs(), 0)
        kept = self._state.get()
        done = advance(self._piece, None if kept is None else bytes(kept[0]), packed, watermark_ms=watermark)
        report(done)
        self._state.update((done.state,))
        for timer in list(self._handle.listTimers()):
            self._handle.deleteTimer(timer)
        if done.waits:
            self._handle.registerTimer(watermark + 1)
        return pandas.DataFrame({ROWS: list(done.results)})
