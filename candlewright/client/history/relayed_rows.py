"""Stored candles from the relay: for clients that cannot reach the tables, which is most of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from candlewright.client.errors import PlatformRefused, RowsUnavailable
from candlewright.client.history.history import History
from candlewright.client.history.promised import as_promised
from candlewright.client.history.stored import Stored
from candlewright.client.records import Notification, Range
from candlewright.client.session.questions import Questions, answer_of, fresh_id
from candlewright.client.session.session import Operation
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire.errors import InvalidRequest

if TYPE_CHECKING:
    import pyarrow as pa

#: Pause before an unanswered query is sent again: the relay would read the same rows twice.
_RESEND_SECONDS, _RESEND_MAX_SECONDS = 4.0, 8.0


class RelayedRows(Questions):
    """Each query is answered by one frame; the next one continues where its rows ended."""

    def of(self, wanted: Range, final: Notification) -> Operation[History]:
        """The rows of a request that ended OK; raises RowsUnavailable."""
        table, last = yield from self._read(wanted, covered_by=final.request_id)
        closed_until = last.closed_until if last.HasField("closed_until") else None
        return as_promised(table, holes=_ranges(last.holes), closed_until=closed_until, wanted=wanted, final=final)

    def stored(self, wanted: Range, as_of: int | None) -> Operation[Stored]:
        """The stored rows of the range, or those known at a time (ns); raises RowsUnavailable."""
        table, last = yield from self._read(wanted, as_of=as_of)
        return Stored.of(table, wanted, _ranges(last.holes), as_of=as_of)

    def _read(
        self, wanted: Range, *, as_of: int | None = None, covered_by: str = ""
    ) -> Operation[tuple["pa.Table", cw.StoredRows]]:
        """All rows, and the last answer, which has the missing ranges."""
        import pyarrow as pa

        tables: list[pa.Table] = []
        query = cw.StoredQuery(
            ticker=wanted.ticker,
            period_seconds=wanted.period_seconds,
            start_time=wanted.start,
            end_time=wanted.end,
            limit=wanted.limit,
            as_of=as_of,
            covered_by=covered_by,
        )
        while True:
            query.request_id = fresh_id("rows", self._name)
            answer = yield from self._answer(query)
            tables.append(pa.ipc.open_stream(answer.rows).read_all())
            if not answer.next_start:
                return pa.concat_tables(tables), answer
            query.start_time = answer.next_start
            if wanted.limit is not None:
                query.limit = wanted.limit - sum(table.num_rows for table in tables)

    def _answer(self, query: cw.StoredQuery) -> Operation[cw.StoredRows]:
        try:
            answer, _ = yield from self._asked(
                [query], answer_of(cw.StoredRows), pause=_RESEND_SECONDS, longest_pause=_RESEND_MAX_SECONDS
            )
        except PlatformRefused as refused:
            if refused.code == "INVALID":
                raise InvalidRequest(refused.text) from refused
            raise RowsUnavailable(f"the platform cannot give the rows: {refused.text or refused.code}") from refused
        return answer


def _ranges(found: Sequence[cw.TimeRange]) -> list[tuple[int, int]]:
    return [(each.start_time, each.end_time) for each in found]
