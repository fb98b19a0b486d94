"""Decisions of the history writer, without Spark, bus or tables: which pieces to write together, and how a request
ends.
"""

import json
from bisect import bisect
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from google.protobuf.message import DecodeError

from bus import PartitionState
from candlewright.wire import grid
from candlewright.wire import ingestor_pb2 as ing
from iceberg import NAMESPACE, OHLC
from protobuf import records_pb2 as records
from venues import sound

#: Characters of the error message in a final, whose frame is bounded.
MAX_TEXT = 4_000
Status = ing.HistoryReadyNotification.NotificationStatus
Series = tuple[str, int]


@dataclass(frozen=True, slots=True)
class OutcomeRecord:
    """One record of `history_outcomes` and its position."""

    partition: int
    offset: int
    value: bytes


@dataclass(slots=True)
class Outcomes:
    """The records of a micro-batch. `places`: the record of each accepted piece, by its job. `refused`: records that
    cannot be carried out, with the reason; `faults`: the same by request and piece, for the requests that wait for
    them.
    """

    pieces: list[records.PieceDone] = field(default_factory=list)
    finished: list[records.RequestDone] = field(default_factory=list)
    places: dict[str, OutcomeRecord] = field(default_factory=dict)
    refused: list[tuple[OutcomeRecord, str]] = field(default_factory=list)
    faults: dict[str, dict[int, str]] = field(default_factory=lambda: defaultdict(dict))

    @classmethod
    def of(cls, found: Iterable[OutcomeRecord]) -> "Outcomes":
        outcomes = cls()
        for record in found:
            outcomes._add(record)
        return outcomes

    @property
    def request_ids(self) -> list[str]:
        named = (*(piece.request_id for piece in self.pieces), *self.faults, *(d.request_id for d in self.finished))
        return list(dict.fromkeys(named))

    def _add(self, record: OutcomeRecord) -> None:
        try:
            message = records.HistoryOutcome.FromString(record.value)
        except DecodeError:
            message = records.HistoryOutcome()
        match message.WhichOneof("body"):
            case "piece":
                self._add_piece(record, message.piece)
            case "request":
                self._add_end(record, message.request)
            case _:
                self.refused.append((record, "not a HistoryOutcome"))

    def _add_piece(self, record: OutcomeRecord, piece: records.PieceDone) -> None:
        problem = sound.problem_with_piece(piece)
        if not problem:
            self.pieces.append(piece)
            self.places[piece.job_id] = record
            return
        self.refused.append((record, problem))
        if piece.request_id:
            self.faults[piece.request_id][piece.piece] = f"The outcome of piece {piece.piece} is not valid: {problem}."

    def _add_end(self, record: OutcomeRecord, done: records.RequestDone) -> None:
        problem = sound.problem_with_request_done(done)
        if not problem:
            self.finished.append(done)
            return
        self.refused.append((record, problem))
        if done.request_id:
            text = f"The end of this request is not valid: {problem}."
            end = records.RequestDone(request_id=done.request_id, ticker=done.ticker, error_message=text)
            end.status = Status.ERROR
            self.finished.append(end)


@dataclass(frozen=True, slots=True)
class Tally:
    """The rows of one unfinished request that are known to be in the table, by piece, and sentences about missing ones.

    Recording a piece again changes nothing, so a micro-batch may be repeated.
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
        """A tally from its bytes. Unreadable bytes count as nothing written, so the request ends as ERROR."""
        try:
            stored = json.loads(content or b"{}")
            return cls(
                {int(piece): int(rows) for piece, rows in stored.get("pieces", {}).items()},
                {int(piece): str(text) for piece, text in stored.get("faults", {}).items()},
            )
        except (ValueError, TypeError, AttributeError):
            return cls(faults={-1: "What was written of this request before is not known."})


def misplaced(piece: records.PieceDone, kept: Sequence[PartitionState]) -> str:
    """The reason why the piece's spans cannot be read from `history`, whose partitions are `kept`; or an empty
    string.
    """
    if not piece.spans:
        return ""
    if piece.partition >= len(kept):
        return f"Piece {piece.piece} names partition {piece.partition} of history, which has {len(kept)}."
    state, first, last = kept[piece.partition], piece.spans[0].first_offset, piece.spans[-1].last_offset
    if first < state.first:
        return f"The pages of piece {piece.piece} are no longer on the bus: it keeps offsets from {state.first} on."
    if last >= state.end:
        return f"Piece {piece.piece} names offset {last} of history, which ends at {state.end}."
    return ""


def waves(pieces: Iterable[records.PieceDone], max_rows: int) -> list[list[records.PieceDone]]:
    """Group pieces into commits of at most `max_rows` rows, or one piece. Pieces of one commit do not overlap, so no
    key occurs twice, and a later outcome is compared with what an earlier one wrote.
    """
    result: list[list[records.PieceDone]] = []
    taken: dict[Series, list[tuple[int, int]]] = {}
    rows = 0
    for piece in pieces:
        if not result or rows + piece.rows > max_rows or not _take(taken, piece):
            result.append([])
            rows, taken = 0, {}
            _take(taken, piece)
        result[-1].append(piece)
        rows += piece.rows
    return result


def _take(taken: dict[Series, list[tuple[int, int]]], piece: records.PieceDone) -> bool:
    """Add the piece's range to those of its series, in order; False if it overlaps one of them."""
    own = taken.setdefault((piece.ticker, piece.period_seconds), [])
    start, end = piece.start_time, piece.end_time
    place = bisect(own, (start, end))
    if (place and own[place - 1][1] > start) or (place < len(own) and own[place][0] < end):
        return False
    own.insert(place, (start, end))
    return True


def runs(
    pieces: Sequence[records.PieceDone], max_gap: int = 0, max_candles: int | None = None
) -> list[list[records.PieceDone]]:
    """Pieces grouped by ticker and period if they touch or are at most `max_gap` candles apart; each group spans at
    most `max_candles`, or has one piece.
    """
    ordered = sorted(pieces, key=lambda piece: (piece.ticker, piece.period_seconds, piece.start_time))
    result: list[list[records.PieceDone]] = []
    for piece in ordered:
        if not result or not _continues(result[-1], piece, max_gap, max_candles):
            result.append([])
        result[-1].append(piece)
    return result


def _continues(run: Sequence[records.PieceDone], piece: records.PieceDone, max_gap: int, most: int | None) -> bool:
    first, last, candle = run[0], run[-1], piece.period_seconds * grid.SECOND
    return (
        (last.ticker, last.period_seconds) == (piece.ticker, piece.period_seconds)
        and piece.start_time - last.end_time <= max_gap * candle
        and (most is None or piece.end_time - first.start_time <= most * candle)
    )


def final_notification(done: records.RequestDone, tally: Tally, now_ns: int) -> ing.HistoryReadyNotification:
    """The final notification: OK or NOT_FOUND only if the table has exactly the rows that the broker accepted."""
    status, text = done.status, done.error_message
    if status in (Status.OK, Status.NOT_FOUND):
        if tally.faults:
            status, text = Status.ERROR, " ".join(tally.faults[piece] for piece in sorted(tally.faults))
        elif tally.rows != done.rows:
            status = Status.ERROR
            text = f"{done.rows} candles were fetched but only {tally.rows} of them could be written and counted."
        elif status == Status.NOT_FOUND and tally.rows:
            status, text = Status.ERROR, f"{tally.rows} candles were written for a request that should have none."
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
        final.error_message = text[:MAX_TEXT]
    return final
