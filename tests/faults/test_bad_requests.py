"""Invalid input on every socket: each message is answered or costs its sender the connection, unnoticed by other
clients.
"""

import random
import socket
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import zmq

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from tests.faults.harness import MINUTE_MS, VERSION, Platform, Status, Submitted, WireClient, submit_message

#: Includes the start of the platform, for which the first test waits.
pytestmark = pytest.mark.timeout(400)

#: 2023-03-01 00:00 UTC
MARCH_MS = 1_677_628_800_000
HOUR_MS = 60 * MINUTE_MS
TICKER = "BTC/USDT.BINANCE"
ERROR = 0x40
GOOD = submit_message("good", TICKER, MARCH_MS, end_ms=MARCH_MS + HOUR_MS).SerializeToString()


def changed(**fields: object) -> ing.SubmitHistoricalRequest:
    message = submit_message("bad", TICKER, MARCH_MS, end_ms=MARCH_MS + HOUR_MS)
    for name, value in fields.items():
        setattr(message, name, value)
    return message


@pytest.fixture(autouse=True)
def _everything_still_works(platform: Platform, client: WireClient, request: pytest.FixtureRequest) -> Iterator[None]:
    """After each test the same processes serve the next request."""
    before = {name: part["pid"] for name, part in platform.page()["parts"].items()}
    yield
    platform.wait_until_well()
    start_ms = MARCH_MS + random.randrange(100_000) * MINUTE_MS
    name = f"after-{request.node.name}"[:150].replace("#", "")
    final = client.history(submit_message(name, TICKER, start_ms, end_ms=start_ms + HOUR_MS), 60)
    assert (final.status, final.row_count) == (Status.OK, 60)
    assert platform.rows(TICKER, start_ms, start_ms + HOUR_MS) == platform.exchange_rows(
        "BTCUSDT", start_ms, start_ms + HOUR_MS
    )
    after = {name: part["pid"] for name, part in platform.page()["parts"].items()}
    assert after == before, "a part had to be started again"


#: Requests, and a word of the sentence in the answer to each.
IMPOSSIBLE = (
    (changed(ticker="BTC/USDT.ATLANTIS"), "ATLANTIS"),
    (changed(ticker="BTCUSDT"), "ticker"),
    (changed(ticker=""), "ticker"),
    (changed(ticker="BTC/USDT.BINANCE'; DROP TABLE ohlc"), ""),
    (changed(period_seconds=0), "period"),
    (changed(period_seconds=61), "61"),
    (changed(period_seconds=4_294_967_295), "4294967295"),
    (changed(end_time=MARCH_MS * 1_000_000), "before"),
    (changed(end_time=(MARCH_MS - 1) * 1_000_000), "before"),
    (changed(limit=0), "limit"),
    (changed(start_time=MARCH_MS // 1_000, end_time=MARCH_MS // 1_000 + 3_600), "nanoseconds"),
    (changed(start_time=MARCH_MS, end_time=MARCH_MS + HOUR_MS), "nanoseconds"),
    (changed(start_time=0), "nanoseconds"),
    (changed(end_time=(1 << 64) - 1), "nanoseconds"),
    (changed(request_id=""), "empty"),
    (changed(request_id="x" * 10_240), "10240"),
    (changed(request_id="a#1"), "#"),
    (changed(client_id="c" * 10_240), "client_id"),
    (changed(client_id="a#1"), "#"),
)


def test_an_impossible_request_is_invalid_with_a_sentence(client: WireClient) -> None:
    for message, word in IMPOSSIBLE:
        answer = client.submit(message)
        assert answer.status == Submitted.INVALID, message
        assert len(answer.error_message.split()) > 3
        assert word in answer.error_message, message
        assert answer.notification_topic == ""


def test_an_id_that_is_known_with_other_parameters_is_invalid_and_the_first_continues(client: WireClient) -> None:
    first = submit_message("known", TICKER, MARCH_MS, end_ms=MARCH_MS + HOUR_MS)
    assert client.submit(first).status in (Submitted.QUEUED, Submitted.DUPLICATE)
    for other in (
        submit_message("known", TICKER, MARCH_MS, end_ms=MARCH_MS + 2 * HOUR_MS),
        submit_message("known", TICKER, MARCH_MS, end_ms=MARCH_MS + HOUR_MS, period_seconds=300),
        submit_message("known", "ETH/USDT.BINANCE", MARCH_MS, end_ms=MARCH_MS + HOUR_MS),
        submit_message("known", TICKER, MARCH_MS, end_ms=MARCH_MS + HOUR_MS, limit=1),
        submit_message("known", TICKER, MARCH_MS, end_ms=MARCH_MS + HOUR_MS, client_id="another-client"),
    ):
        answer = client.submit(other)
        assert (answer.status, answer.notification_topic) == (Submitted.INVALID, ""), other
    assert client.submit(first).status == Submitted.DUPLICATE
    final = client.final("known")
    assert (final.status, final.row_count, final.ticker) == (Status.OK, 60, TICKER)


def test_a_symbol_that_the_venue_does_not_have_is_queued_and_not_found(client: WireClient) -> None:
    answer = client.submit(submit_message("no-symbol", "NOSUCH/COIN.BINANCE", MARCH_MS, end_ms=MARCH_MS + HOUR_MS))
    assert answer.status in (Submitted.QUEUED, Submitted.DUPLICATE)
    final = client.final("no-symbol")
    assert (final.status, final.row_count) == (Status.NOT_FOUND, 0)


@contextmanager
def dealer(address: str) -> Iterator["zmq.Socket[bytes]"]:
    with zmq.Context() as context, context.socket(zmq.DEALER) as peer:
        peer.linger = 0
        peer.rcvtimeo = 20_000
        peer.connect(address)
        yield peer


BAD_FRAMES = {
    "unknown version": [b"\x02", b"\x10" + GOOD],
    "long version": [b"\x01\x01", b"\x10" + GOOD],
    "unknown type": [VERSION, b"\xfe" + GOOD],
    "type that is not for this socket": [VERSION, b"\x12"],
    "empty body": [VERSION, b""],
    "one empty frame": [b""],
    "empty frames": [b"", b""],
    "body without a version": [b"\x10" + GOOD],
    "cut message": [VERSION, b"\x10" + GOOD[:-3]],
    "cut slot": [VERSION, b"\x20\x0a\x07BIN"],
    "noise": [VERSION, b"\x10" + random.Random(1).randbytes(5_000)],
    "too large": [VERSION, b"\x10" + bytes(70_000)],
    "too large slot": [VERSION, b"\x20" + bytes(70_000)],
    "too large completion": [VERSION, b"\x21" + bytes(1 << 20)],
    "three frames": [VERSION, b"\x10" + GOOD, b""],
    "ten thousand frames": [b"x"] * 10_000,
    "ten thousand empty frames": [b""] * 10_000,
}


@pytest.mark.parametrize("server", ["relay", "broker"])
def test_bad_frames_are_answered_with_an_error(platform: Platform, server: str) -> None:
    settings = platform.up.settings
    address = settings.relay.requests_bind if server == "relay" else settings.broker.bind
    for name, frames in BAD_FRAMES.items():
        # One peer for each, because an answer does not say which frames it answers.
        with dealer(address) as peer:
            peer.send_multipart(frames)
            while True:
                answer = [frame for frame in peer.recv_multipart() if frame]
                # The broker's own heartbeats arrive on this socket too.
                if not (server == "broker" and answer[1][0] == 0x02):
                    break
        version, body = answer
        assert (version, body[0]) == (VERSION, ERROR), (name, answer)
        error = cw.Error.FromString(body[1:])
        assert error.code.isupper(), name
        assert len(error.text.split()) > 2, name


def test_a_frame_beyond_all_limits_costs_its_sender_the_connection(platform: Platform) -> None:
    settings = platform.up.settings
    for address in (settings.relay.requests_bind, settings.broker.bind, settings.relay.notifications_bind):
        is_subscriber = address == settings.relay.notifications_bind
        with zmq.Context() as context, context.socket(zmq.SUB if is_subscriber else zmq.DEALER) as peer:
            peer.linger = 0
            monitor = peer.get_monitor_socket(zmq.EVENT_DISCONNECTED)
            peer.connect(address)
            if is_subscriber:
                # A much longer one overflows the stack of the subscriber's own libzmq.
                peer.subscribe(b"x" * 100_000)
            else:
                peer.send_multipart([VERSION, b"\x10" + bytes(20 << 20)])
            with monitor:
                assert monitor.poll(20_000), f"the connection to {address} was kept"
                peer.disable_monitor()


GREETING = b"\xff" + bytes(8) + b"\x7f\x03\x00NULL" + bytes(16) + b"\x00" + bytes(31)


NOT_ZEROMQ = (
    b"",
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    b"\xff" * 100,
    GREETING,
    # With a command that never ends.
    GREETING + b"\x06" + b"\xff" * 8,
    bytes(10_000),
)


def test_connections_that_do_not_speak_zeromq_are_harmless(platform: Platform) -> None:
    settings = platform.up.settings
    connected = []
    try:
        for address in (settings.relay.requests_bind, settings.relay.notifications_bind, settings.broker.bind):
            host, _, port = address.removeprefix("tcp://").rpartition(":")
            for content in NOT_ZEROMQ * 20:
                peer = socket.create_connection((host, int(port)), timeout=10)
                connected.append(peer)
                peer.sendall(content)
    finally:
        for peer in connected:
            peer.close()


def test_false_reports_about_jobs_of_others_change_nothing(platform: Platform, client: WireClient) -> None:
    start_ms = MARCH_MS - 50_000 * MINUTE_MS
    request = submit_message("lied-about", TICKER, start_ms, end_ms=start_ms + 20_000 * MINUTE_MS)
    row = cw.OHLCV(open_time=start_ms * 1_000_000, open=1, high=1, low=1, close=1, volume=1, period_seconds=60)
    lies = (
        (0x21, ing.WorkComplete(job_id="nobody", success=True)),
        (0x21, ing.WorkComplete(job_id="", success=False, error_message="REFUSED: no")),
        (0x23, ing.WorkReject(job_id="nobody", reason="x")),
        (0x22, ing.WorkHeartbeat(job_id="nobody")),
        (0x4E, cw.HistoryEnd(job_id="nobody", rows=1, expected=1)),
        (0x03, ing.DataResponse(request_id="lied-about", ohlc_data=[row.SerializeToString()], total_records=1)),
        (0x03, ing.DataResponse(request_id="lied-about#0", ohlc_data=[b"\xff"], total_records=1)),
    )
    with dealer(platform.up.settings.broker.bind) as liar:
        assert client.submit(request).status == Submitted.QUEUED
        for _ in range(20):
            for type_id, message in lies:
                liar.send_multipart([VERSION, bytes((type_id,)) + message.SerializeToString()])
        final = client.final("lied-about", 90)
    assert (final.status, final.row_count) == (Status.OK, 20_000), final
    assert platform.rows(TICKER, start_ms, start_ms + 20_000 * MINUTE_MS) == platform.exchange_rows(
        "BTCUSDT", start_ms, start_ms + 20_000 * MINUTE_MS
    )
