from collections.abc import Iterator

import pytest

from bus.api import Bus
from bus.memory_bus import MemoryBus
from bus.redis_bus import RedisBus
from tests.bus.contract import BusContract, MakeBus


class TestMemoryBus(BusContract):
    @pytest.fixture
    def make_bus(self) -> MakeBus:
        def make(**options: object) -> Bus:
            return MemoryBus(**options)  # type: ignore[arg-type]

        return make

    @pytest.fixture
    def bus(self, make_bus: MakeBus) -> Bus:
        return make_bus()


class TestRedisBus(BusContract):
    @pytest.fixture
    def make_bus(self, redis_url: str) -> Iterator[MakeBus]:
        made: list[RedisBus] = []

        def make(**options: object) -> Bus:
            made.append(RedisBus(redis_url, **options))  # type: ignore[arg-type]
            return made[-1]

        yield make
        for bus in made:
            bus.close()

    @pytest.fixture
    def bus(self, make_bus: MakeBus) -> Bus:
        return make_bus()
