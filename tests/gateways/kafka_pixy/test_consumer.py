"""One group on one topic, on a bus."""

import asyncio
import time

from bus.api import Record
from core.settings_gateways import KafkaPixySettings
from gateways.kafka_pixy.bus_calls import BusCalls
from gateways.kafka_pixy.consumer import Call, Consumer
from gateways.kafka_pixy.instances import Instances
from tests.fresh_bus import FreshBus


def test_a_record_that_comes_with_the_end_of_a_calls_time_stops_nothing_else() -> None:
    bus, calls = FreshBus(partitions=1), BusCalls()

    async def scenario() -> None:
        consumer = Consumer(bus, calls, "t", group="g", settings=KafkaPixySettings(), me=Instances(bus))
        while consumer.problem:
            await asyncio.sleep(0.01)
        bus.publish("t", [Record(b"x")])
        # Its timer has not been heard yet.
        now = time.monotonic()
        late = Call(now, now, asyncio.get_running_loop().create_future())
        consumer._line.join(late, late.deadline)
        consumer.arrived()
        while not consumer._line.buffered:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.01)
        assert time.monotonic() - now < 0.9
        next_one = consumer.join(time.monotonic())
        assert next_one is not None
        offered = await next_one.outcome
        assert offered is not None
        assert offered.record.value == b"x"
        await consumer.close()

    asyncio.run(scenario())
    calls.close()
