"""kill -9 of any part at any moment, under load: each queued request ends once, with exactly the right rows.

`KILL_ROUNDS` and `KILL_SEED` in the environment make longer or repeated runs.
"""
# ruff: noqa: T201

import random
import threading
import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from candlewright.wire import ingestor_pb2 as ing
from sandbox.behaviour.faults import Fault
from tests.faults.harness import (
    MINUTE_MS,
    Platform,
    Row,
    Status,
    Submitted,
    WireClient,
    submit_message,
    until,
    victims_of,
)

IN_FLIGHT = 12
#: 2024-03-01 00:00 UTC, and how far from it requests reach.
FIRST_MS, SPAN_MINUTES = 1_709_251_200_000, 30 * 1_440
SYMBOLS = ("BTC", "ETH", "SOL", "DOGE")
INTERVALS = {60: "1m", 300: "5m", 3_600: "1h"}


@dataclass(kw_only=True)
class Load:
    """Submits one request after another, with a bounded number unfinished."""

    client: WireClient
    choice: random.Random
    asked: dict[str, ing.SubmitHistoricalRequest] = field(default_factory=dict)
    answers: Counter[int] = field(default_factory=Counter)
    repeated: int = 0
    problem: str = ""
    is_over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        try:
            while not self.is_over.is_set():
                if len(self.asked) - len(self.client.deliveries.bodies) >= IN_FLIGHT:
                    self._ask_again()
                    continue
                message = self._next()
                answer = self.client.submit(message)
                self.answers[answer.status] += 1
                if answer.status not in (Submitted.QUEUED, Submitted.DUPLICATE):
                    self.problem = f"{message} was answered by {answer}"
                    return
                self.asked[message.request_id] = message
        except AssertionError as error:
            self.problem = str(error)

    def _ask_again(self) -> None:
        """A queued request stays known whatever was killed since, and its final notification is repeated unchanged."""
        time.sleep(0.05)
        message = self.asked[self.choice.choice(list(self.asked))]
        answer = self.client.submit(message)
        assert answer.status == Submitted.DUPLICATE, f"{message.request_id} was queued before: {answer}"
        self.repeated += 1

    def wait_for_finals(self, number: int) -> None:
        """Wait until this many more requests are finished."""
        enough = len(self.client.deliveries.bodies) + number
        until(lambda: self.problem or len(self.client.deliveries.bodies) >= enough, 240, "work continues")

    def _next(self) -> ing.SubmitHistoricalRequest:
        choice = self.choice
        period = choice.choices((60, 300, 3_600), (8, 1, 1))[0]
        minutes = choice.choice((1, 7, 300, 2_000, 4_000, 15_000))
        first = choice.randrange(SPAN_MINUTES - minutes)
        start_ms = FIRST_MS + first * MINUTE_MS
        further = {"client_id": self.client.client_id} if choice.random() < 0.7 else {}
        if choice.random() < 0.2:
            further["limit"] = choice.choice((1, 500, 1_500))  # type: ignore[assignment]
        return submit_message(
            f"killed-{len(self.asked)}",
            f"{choice.choice(SYMBOLS)}/USDT.BINANCE",
            start_ms,
            end_ms=start_ms + minutes * MINUTE_MS,
            period_seconds=period,
            **further,
        )


@pytest.mark.timeout(1_800)
def test_every_queued_request_ends_once_with_the_right_rows(
    platform: Platform, choice: random.Random, rounds: int
) -> None:
    platform.wait_until_well()
    slow = platform.exchange.add_fault(Fault(kind="delay", path="*/klines", seconds=0.15, probability=0.5))
    with platform.client("kill") as client:
        load = Load(client=client, choice=random.Random(choice.random()))
        thread = threading.Thread(target=load.run, name="load")
        thread.start()
        try:
            for victim in victims_of(choice, rounds):
                pause = choice.uniform(0.0, 2.0)
                print(f"after {pause:.2f} s: kill -9 {victim}; {len(load.asked)} asked")
                load.is_over.wait(pause)
                platform.kill(victim)
                if choice.random() < 0.7:
                    # Otherwise the next part dies while this one is still restarting.
                    load.wait_for_finals(3)
                assert not load.problem, load.problem
        finally:
            load.is_over.set()
            thread.join()
            platform.exchange.call(lambda sandbox: sandbox.state.faults.remove(slow))
        assert not load.problem, load.problem
        platform.wait_until_well(240)
        client.finals(load.asked, 240)
        print(f"{len(load.asked)} asked, {load.repeated} repeated, {client.resent} resent, {client.refused} refused")
        assert len(load.asked) > rounds
        assert load.repeated > rounds
        _check(platform, load)
        assert client.deliveries.strange == []


def _check(platform: Platform, load: Load) -> None:
    coverage = platform.coverage()
    truth: dict[tuple[str, int], dict[int, Row]] = {}
    stored: dict[tuple[str, int], dict[int, Row]] = {}
    for symbol in SYMBOLS:
        for period, interval in INTERVALS.items():
            key = (f"{symbol}/USDT.BINANCE", period)
            end_ms = FIRST_MS + SPAN_MINUTES * MINUTE_MS
            truth[key] = {
                row[0]: row for row in platform.exchange_rows(f"{symbol}USDT", FIRST_MS, end_ms, interval=interval)
            }
            rows = platform.all_rows(*key)
            assert len({row[0] for row in rows}) == len(rows), f"{key}: some rows are there twice"
            # Other tests on this platform request other months.
            stored[key] = {row[0]: row for row in rows if FIRST_MS <= row[0] < end_ms}
    for request_id, message in load.asked.items():
        final = load.client.final(request_id)
        key = (message.ticker, message.period_seconds)
        start_ms, end_ms = message.start_time // 1_000_000, message.end_time // 1_000_000
        right = [row for at, row in sorted(truth[key].items()) if start_ms <= at < end_ms]
        if message.HasField("limit"):
            right = right[: message.limit]
        status = Status.OK if right else Status.NOT_FOUND
        assert (final.status, final.row_count) == (status, len(right)), (message, final)
        assert [stored[key].get(row[0]) for row in right] == right, message
        (row,) = coverage[request_id]
        found = (row["ticker"], row["period_seconds"], row["status"], row["got"])
        assert found == (*key, Status.Name(status), len(right)), row
        assert row["holes"] == []
        assert round(row["start"].timestamp() * 1_000) == start_ms
    asked_rows = {
        key: {
            at
            for message in load.asked.values()
            if (message.ticker, message.period_seconds) == key
            for at in truth[key]
            if message.start_time <= at * 1_000_000 < message.end_time
        }
        for key in truth
    }
    for key, rows_by_time in stored.items():
        outside = set(rows_by_time) - asked_rows[key]
        invented = {at for at in outside if truth[key].get(at) != rows_by_time[at]}
        assert not invented, f"{key}: rows that the exchange does not have: {sorted(invented)[:5]}"
