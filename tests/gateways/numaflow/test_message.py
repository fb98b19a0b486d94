"""A record as Numaflow receives it."""

import time

from bus.api import Record
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from tests.gateways.numaflow.conftest import Connect, Serve, ShakyBus

TICKER = "BTC/USDT.BINANCE"
START = 1_700_000_000_000_000_000


async def test_records_of_the_platform_have_their_own_time_key_and_headers(
    bus: ShakyBus, serve: Serve, connect: Connect
) -> None:
    key = TICKER.encode()
    tick = cw.Tick(ticker=TICKER, trade_id="7", timestamp=START + 5, price=1.5, size=2)
    batch = cw.TickBatch(
        ticker=TICKER,
        timestamp=[START + 9, START + 8],
        price=[1, 2],
        size=[1, 1],
        side=[1, 2],
        trade_id=["8", "9"],
        received_at=[1, 1],
    )
    bar = cw.OHLCV(ticker=TICKER, open_time=START, period_seconds=60)
    event = ing.CEPTriggerEvent(trigger_id="up", timestamp=START + 3, context={"ticker": TICKER})
    for topic, message, own_key, headers in (
        ("ticks", tick, key, {"traceparent": "00-1-2-01"}),
        ("ticks", batch, key, {}),
        ("ohlc", bar, key, {}),
        ("trigger_events", event, b"up", {}),
        ("ticks", None, b"?", {}),
    ):
        value = message.SerializeToString() if message is not None else b"no tick"
        bus.publish(topic, [Record(value, key=own_key, partition_key=key, headers=headers)])
    peer = connect(await serve(topic=["ticks", "ohlc", "trigger_events"]))
    found = {each.payload: each for each in await peer.read(10)}
    assert len(found) == 5

    def seen(message: cw.Tick | cw.TickBatch | cw.OHLCV | ing.CEPTriggerEvent) -> tuple[int, list[str], dict[str, str]]:
        result = found[message.SerializeToString()]
        return result.event_time.ToNanoseconds(), list(result.keys), dict(result.headers)

    common = {"ticker": TICKER}
    assert seen(tick) == (
        START + 5,
        ["BINANCE:BTC/USDT"],
        {
            "topic": "ticks",
            "kind": "tick",
            "schema": "candlewright.Tick",
            "traceparent": "00-1-2-01",
            **common,
        },
    )
    assert seen(batch) == (
        START + 8,
        ["BINANCE:BTC/USDT"],
        {"topic": "ticks", "kind": "tick", "schema": "candlewright.TickBatch", **common},
    )
    assert seen(bar) == (
        START + 60_000_000_000,
        ["BINANCE:BTC/USDT"],
        {"topic": "ohlc", "kind": "ohlc", "schema": "candlewright.OHLCV", "period": "60", **common},
    )
    assert seen(event) == (
        START + 3,
        ["up"],
        {
            "topic": "trigger_events",
            "kind": "cep",
            "schema": ing.CEPTriggerEvent.DESCRIPTOR.full_name,
            **common,
        },
    )
    unreadable = found[b"no tick"]
    assert dict(unreadable.headers) == {"topic": "ticks"}
    assert abs(unreadable.event_time.ToNanoseconds() / 1e9 - time.time()) < 60
