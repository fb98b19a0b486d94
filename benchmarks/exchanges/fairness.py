"""How long a small request waits while another client's many requests are queued.

A whole platform with the sandbox exchange. The first client sends `--requests` requests of ten candles as fast as they
are accepted, each under a different client id. The second one requests ten candles from time to time: before that,
while the others are sent, and while they are processed. `idle_seconds`, `sending_seconds` and `backlog_seconds` are the
medians of its waits, from submission to HistoryReady; `ratio` is that of the worse of the latter two to the idle one.
"""

import argparse
import json
import os
import statistics
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import Any

import zmq

from benchmarks.measuring.spark_master import ALL_CORES, add_master
from candlewright.client import Client, Outcome, connect
from candlewright.wire import frames
from candlewright.wire import ingestor_pb2 as ing
from candlewright_platform.supervisor.private import PrivatePlatform

TICKER = "BTC/USDT.BINANCE"
SECOND = 1_000_000_000
MINUTE = 60 * SECOND
#: 2020-01-01 00:00 UTC, when the sandbox's BTC/USDT had been listed for a while.
START = 1_577_836_800 * SECOND
CANDLES = 10
#: Submissions waiting for their answer.
AHEAD = 2_000
WARM_UPS = 3


class Crowd:
    """The first client: a DEALER that sends without waiting for its answers."""

    def __init__(self, address: str, requests: int) -> None:
        self._address = address
        self._requests = requests
        self.accepted = 0
        self.seconds = 0.0
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def is_sending(self) -> bool:
        return self._thread.is_alive()

    def join(self) -> None:
        self._thread.join()

    def _run(self) -> None:
        started = time.monotonic()
        with zmq.Context() as context, context.socket(zmq.DEALER) as socket:
            socket.linger = 0
            socket.connect(self._address)
            sent = answered = 0
            while answered < self._requests:
                while sent < self._requests and sent - answered < AHEAD:
                    socket.send_multipart(frames.encode(request(sent)))
                    sent += 1
                answer = frames.decode(socket.recv_multipart(), frames.RELAY_TO_CLIENT)
                answered += 1
                self.accepted += isinstance(answer, ing.SubmitResponse) and answer.status == ing.SubmitResponse.QUEUED
        self.seconds = time.monotonic() - started


def request(number: int) -> ing.SubmitHistoricalRequest:
    start = START + number * CANDLES * MINUTE
    return ing.SubmitHistoricalRequest(
        request_id=f"crowd-{number}",
        client_id=f"crowd-{number}",
        ticker=TICKER,
        start_time=start,
        end_time=start + CANDLES * MINUTE,
        period_seconds=60,
    )


def run(requests: int = 200_000, rounds: int = 7, master: str = ALL_CORES) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(prefix="candlewright-bench-") as folder:
        platform = PrivatePlatform(
            Path(folder),
            ("--sandbox",),
            {"INGESTOR__RATE_LIMIT": "false", "SANDBOX__RATE_LIMIT": "false", "SPARK__MASTER": master},
            hear=lambda line: print(line, file=sys.stderr),
        )
        with platform, connect(settings=platform.settings, timeout=120.0) as client:
            days = count(1)
            for _ in range(WARM_UPS):
                wait(client, next(days))
            idle = [wait(client, next(days)) for _ in range(rounds)]
            crowd = Crowd(platform.settings.relay.requests_bind, requests)
            sending = list(waits(client, days, crowd, rounds=rounds))
            crowd.join()
            backlog = [wait(client, next(days)) for _ in range(rounds)]
    idle_seconds, sending_seconds, backlog_seconds = map(statistics.median, (idle, sending, backlog))
    return {
        "rows": crowd.accepted,
        "seconds": round(crowd.seconds, 3),
        "rows_per_second": round(crowd.accepted / crowd.seconds),
        "result_rows": len(idle) + len(sending) + len(backlog),
        "idle_seconds": round(idle_seconds, 3),
        "sending_seconds": round(sending_seconds, 3),
        "backlog_seconds": round(backlog_seconds, 3),
        "worst_seconds": round(max(*sending, *backlog), 3),
        "ratio": round(max(sending_seconds, backlog_seconds) / idle_seconds, 2),
        "processors": os.cpu_count(),
    }


def waits(client: Client, days: Iterator[int], crowd: Crowd, *, rounds: int) -> Iterator[float]:
    """At most this many, while the crowd is sending."""
    for _ in range(rounds):
        yield wait(client, next(days))
        if not crowd.is_sending:
            return


def wait(client: Client, day: int) -> float:
    """Seconds from the request for ten candles of a separate day to the notification."""
    start = START - day * 1_440 * MINUTE
    started = time.monotonic()
    submitted = client.submit(TICKER, 60, start=start, end=start + CANDLES * MINUTE)
    final = client.wait(submitted.request_id, timeout=600.0)
    assert (final.status, final.row_count) == (Outcome.OK, CANDLES), final
    return time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(prog="candlewright bench fairness", description=__doc__)
    parser.add_argument("--requests", type=int, default=200_000, help="requests of the first client (default: 200,000)")
    parser.add_argument(
        "--rounds", type=int, default=7, help="requests of the second client in each phase (default: 7)"
    )
    add_master(parser, ALL_CORES)
    parser.add_argument("--output", choices=["json"], default="json", help="one line of JSON")
    arguments = parser.parse_args()
    print(json.dumps(run(arguments.requests, arguments.rounds, arguments.master)), flush=True)


if __name__ == "__main__":
    main()
