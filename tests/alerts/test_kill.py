"""The process is killed at random moments: every event arrives, and has one outcome."""

import asyncio
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from alerts.destination import MAX_IN_FLIGHT
from bus import topics
from bus.redis.embedded import EmbeddedRedis
from bus.redis.redis_bus import RedisBus
from tests.alerts.receiver import Receiver, until
from tests.alerts.test_server import event, outcomes

pytestmark = pytest.mark.processes

#: The same number of events in each life of the process, whatever the number of kills.
EVENTS = 420


def environment_of(redis: EmbeddedRedis, receiver: Receiver, folder: Path) -> dict[str, str]:
    return {
        **os.environ,
        "CANDLEWRIGHT_BUS__URL": redis.url,
        "CANDLEWRIGHT_DATA_DIR": str(folder / "data"),
        "CANDLEWRIGHT_HTTP__BIND": "127.0.0.1:0",
        "CANDLEWRIGHT_ALERTS__HOOK__URL": receiver.url,
        "CANDLEWRIGHT_ALERTS__HOOK__ALLOW_PRIVATE": "true",
    }


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.long)])
async def test_killed_at_any_moment_no_event_is_lost(tmp_path: Path, kills: int) -> None:
    redis = EmbeddedRedis(tmp_path, fsync="no").start()
    bus, receiver, choose = RedisBus(redis.url, 4), Receiver(), random.Random(7)
    events = [event(number, f"t{number % 5}") for number in range(EVENTS)]
    try:
        async with receiver.serve():
            environment = environment_of(redis, receiver, tmp_path)
            for life in range(kills + 1):
                # As a supervisor does: without waiting for the role's lease.
                own = {**environment, "CANDLEWRIGHT_SUPERVISED": "seat"}
                process = await asyncio.create_subprocess_exec(sys.executable, "-m", "alerts", env=own)
                try:
                    await until(lambda: bus.items(topics.TABLE_ALERTS), "it has its place on the bus")
                    share = EVENTS // (kills + 1)
                    bus.publish(topics.TRIGGER_EVENTS, events[life * share : (life + 1) * share])
                    if life < kills:
                        wanted = life * share + choose.randrange(share // 2)
                        await until(lambda wanted=wanted: len(receiver.taken) >= wanted, "it is at work")  # type: ignore[misc]
                        process.kill()
                    else:
                        await until(lambda: len(outcomes(bus)) >= EVENTS, "every event has its outcome")
                        process.send_signal(signal.SIGTERM)
                finally:
                    code = await asyncio.wait_for(process.wait(), 30)
            assert code == 0
            ended = Counter(each["event_id"] for each in outcomes(bus))
    finally:
        bus.close()
        redis.stop()
    wanted = {f"t{number % 5}-{number}" for number in range(EVENTS)}
    assert set(receiver.taken) == wanted
    assert ended == dict.fromkeys(wanted, 1)
    # At least once: messages in flight at a kill, or without an outcome on the bus, may have arrived before it.
    assert len(receiver.taken) <= EVENTS + kills * MAX_IN_FLIGHT


async def test_one_of_two_processes_delivers_and_the_other_takes_over(tmp_path: Path) -> None:
    redis = EmbeddedRedis(tmp_path, fsync="no").start()
    bus, receiver = RedisBus(redis.url, 4), Receiver()
    try:
        async with receiver.serve():
            environment = environment_of(redis, receiver, tmp_path) | {"CANDLEWRIGHT_ROLES__LEASE_SECONDS": "1"}
            first = await asyncio.create_subprocess_exec(sys.executable, "-m", "alerts", env=environment)
            await until(lambda: bus.items(topics.TABLE_ALERTS), "the first one serves")
            second = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "alerts", env=environment, stdout=asyncio.subprocess.PIPE
            )
            try:
                assert second.stdout is not None
                lines = [line async for line in until_line(second.stdout, b"standby")]
                assert lines
                bus.publish(topics.TRIGGER_EVENTS, [event(1)])
                await until(lambda: len(outcomes(bus)) == 1, "the first one delivers")
                first.send_signal(signal.SIGSTOP)
                bus.publish(topics.TRIGGER_EVENTS, [event(2)])
                await until(lambda: len(outcomes(bus)) == 2, "the second one takes over")
                first.send_signal(signal.SIGCONT)
                assert await asyncio.wait_for(first.wait(), 60) != 0
                bus.publish(topics.TRIGGER_EVENTS, [event(3)])
                await until(lambda: len(outcomes(bus)) == 3, "the second one continues")
            finally:
                for process in (first, second):
                    if process.returncode is None:
                        process.kill()
                        await process.wait()
    finally:
        bus.close()
        redis.stop()
    assert receiver.taken == ["dip-1", "dip-2", "dip-3"]


async def until_line(stream: asyncio.StreamReader, wanted: bytes) -> AsyncIterator[bytes]:
    async with asyncio.timeout(60):
        async for line in stream:
            yield line
            if line.strip() == wanted:
                return
