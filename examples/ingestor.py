"""An external ingestor: serves candles from a small deterministic function, using only pyzmq and protobuf.

    python examples/ingestor.py [tcp://127.0.0.1:5567] [VENUE] [SLOTS]

It offers SLOTS slots for historical jobs of VENUE, answers each job with DataResponse frames and WorkComplete, and
offers the slot again. If the broker is silent for 15 seconds, it opens a new socket and starts over.
"""

import math
import sys
import time
from collections.abc import Iterator

import zmq

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing

VERSION = b"\x01"
DATA_RESPONSE, WORKER_READY, WORK_COMPLETE, WORK_HEARTBEAT, DISPATCH, ERROR = 0x03, 0x20, 0x21, 0x22, 0x24, 0x40
SECOND = 1_000_000_000
PATIENCE_MILLISECONDS = 15_000
ROWS_PER_FRAME = 1_000


def candle(ticker: str, open_time: int, period_seconds: int) -> cw.OHLCV:
    """Always the same candle for the same arguments."""
    first = 100 + 10 * math.sin(open_time / SECOND / 3_600)
    last = 100 + 10 * math.sin((open_time / SECOND + period_seconds) / 3_600)
    return cw.OHLCV(
        ticker=ticker,
        period_seconds=period_seconds,
        open_time=open_time,
        open=first,
        high=max(first, last) + 1,
        low=min(first, last) - 1,
        close=last,
        volume=1 + open_time // SECOND % 7,
        complete=True,
        source="exchange",
    )


def candles(job: ing.DataRequest) -> Iterator[cw.OHLCV]:
    """All closed candles with start <= open time < end, or only the first `limit` if a limit is set."""
    asked = job.historical
    period = asked.period_seconds * SECOND
    monday = 4 * 86_400 * SECOND if asked.period_seconds % 604_800 == 0 else 0
    start = asked.start_time + (monday - asked.start_time) % period
    end = min(asked.end_time, time.time_ns() - period + 1)
    if asked.HasField("limit"):
        end = min(end, start + asked.limit * period)
    for open_time in range(start, end, period):
        yield candle(job.ticker, open_time, asked.period_seconds)


def serve(address: str, venue: str, slots: int) -> None:
    """Serve one connection; returns if the broker is silent for too long."""
    socket: zmq.Socket[bytes] = zmq.Context.instance().socket(zmq.DEALER)
    socket.linger = 0
    socket.connect(address)

    def send(type_id: int, body: bytes) -> None:
        socket.send_multipart([VERSION, bytes([type_id]) + body])

    ready = ing.WorkerReady(exchanges=[venue], job_type=ing.HISTORICAL).SerializeToString()
    for _ in range(slots):
        send(WORKER_READY, ready)
    while socket.poll(PATIENCE_MILLISECONDS):
        _, body = socket.recv_multipart()
        if body[0] == ERROR:
            print("the broker says:", cw.Error.FromString(body[1:]).text, file=sys.stderr)
        if body[0] != DISPATCH:
            continue  # heartbeats, and stops, which arrive too late for jobs that finish in one step
        job = ing.DataRequest.FromString(body[1:])
        rows = [row.SerializeToString() for row in candles(job)]
        for index in range(0, len(rows), ROWS_PER_FRAME):
            send(WORK_HEARTBEAT, ing.WorkHeartbeat(job_id=job.job_id).SerializeToString())
            page = ing.DataResponse(request_id=job.request_id, ohlc_data=rows[index : index + ROWS_PER_FRAME])
            page.total_records = len(rows)
            send(DATA_RESPONSE, page.SerializeToString())
        send(WORK_COMPLETE, ing.WorkComplete(job_id=job.job_id, success=True).SerializeToString())
        send(WORKER_READY, ready)
    socket.close()


if __name__ == "__main__":
    arguments = dict(enumerate(sys.argv))
    while True:
        serve(arguments.get(1, "tcp://127.0.0.1:5567"), arguments.get(2, "EXAMPLE"), int(arguments.get(3, 4)))
