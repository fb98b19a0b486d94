"""Decisions of the history writer, without Spark, bus or tables: what to write together, and how a request ends."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from iceberg import NAMESPACE, OHLC
from protobuf import ingestor_pb2 as ing
from protobuf import records_pb2 as records

Status = ing.HistoryReadyNotification.NotificationStatus


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """One record of `history_outcomes` and where it stood."""

    partition: int
    offset: int
    value: bytes


@dataclass(frozen=True, slots=True)
class Tally:
    """What is known to be in the table of one unfinished request: rows by piece, and sentences on what is not.

    Recording a piece again changes nothing, so that a repeated micro-batch is harmless.
    """

    pieces: Mapping[int, int] = field(default_factory=dict)
    faults: Mapping[int, str] = field(default_factory=dict)

    @property
    def rows(self) -> int:
        return sum(self.pieces.values())

    def with_piece(self, piece: int, rows: int) -> "Tally":
        faults = {number: text for number, text in self.faults.items() if number != piece}
        return replace(self, pieces={**self.pieces, piece: rows}, faults=faults)

    def with_fault(self, piece: int, text: str) -> "Tally":
        return replace(self, faults={**self.faults, piece: text})

    def to_bytes(self) -> bytes:
        return json.dumps({"pieces": dict(self.pieces), "faults": dict(self.faults)}).encode()

    @classmethod
    def from_bytes(cls, content: bytes | None) -> "Tally":
        if content is None:
            return cls()
        stored = json.loads(content)
        return cls(
            {int(piece): rows for piece, rows in stored["pieces"].items()},
            {int(piece): text for piece, text in stored["faults"].items()},
        )


def waves(pieces: Iterable[records.PieceDone], max_rows: int) -> list[list[records.PieceDone]]:
    """Pieces that one commit may hold: none overlaps another of its ticker and period, so that no key comes twice and
    a later outcome is compared with what an earlier one wrote; at most `max_rows` rows, or one piece.
    """
    result: list[list[records.PieceDone]] = []
    rows = 0
    for piece in pieces:
        fits = bool(result) and rows + piece.rows <= max_rows
        if not fits or any(_overlap(piece, other) for other in result[-1]):
            result.append([])
            rows = 0
        result[-1].append(piece)
        rows += piece.rows
    return result


def _overlap(one: records.PieceDone, other: records.PieceDone) -> bool:
    return (
        one.ticker == other.ticker
        and one.period_seconds == other.period_seconds
        and one.start_time < other.end_time
        and other.start_time < one.end_time
    )


def runs(pieces: Sequence[records.PieceDone]) -> list[list[records.PieceDone]]:
    """Pieces of one wave, grouped where they touch: each group is one range of one ticker and period."""
    ordered = sorted(pieces, key=lambda piece: (piece.ticker, piece.period_seconds, piece.start_time))
    result: list[list[records.PieceDone]] = []
    for piece in ordered:
        last = result[-1][-1] if result else None
        touches = last is not None and (last.ticker, last.period_seconds, last.end_time) == (
            piece.ticker,
            piece.period_seconds,
            piece.start_time,
        )
        if not touches:
            result.append([])
        result[-1].append(piece)
    return result


def final_notification(done: records.RequestDone, tally: Tally, now_ns: int) -> ing.HistoryReadyNotification:
    """The one final word: OK or NOT_FOUND only where the table holds exactly the rows that the broker accepted."""
    status, text = done.status, done.error_message
    if status in (Status.OK, Status.NOT_FOUND):
        if tally.faults:
            status, text = Status.ERROR, " ".join(tally.faults[piece] for piece in sorted(tally.faults))
        elif tally.rows != done.rows:
            status = Status.ERROR
            text = f"{done.rows} candles were fetched but only {tally.rows} of them could be written and counted."
        elif status == Status.NOT_FOUND and tally.rows:
            status, text = Status.ERROR, f"{tally.rows} candles were written for a request that was to have none."
    final = ing.HistoryReadyNotification(
        request_id=done.request_id,
        ticker=done.ticker,
        period_seconds=done.period_seconds,
        start_time=done.start_time,
        end_time=done.end_time,
        status=status,
        iceberg_namespace=NAMESPACE,
        iceberg_table=OHLC.name,
        row_count=tally.rows,
        completed_at=now_ns,
    )
    if text:
        final.error_message = text
    return final
