from collections.abc import Iterator

import pytest

from bus.api import Bus
from bus.memory_bus import MemoryBus
from tests.bus.contract import BusContract, MakeBus


class TestMemoryBus(BusContract):
    @pytest.fixture
    def make_bus(self) -> Iterator[MakeBus]:
        def make(**options: object) -> Bus:
            return MemoryBus(**options)  # type: ignore[arg-type]

        yield make

    @pytest.fixture
    def bus(self, make_bus: MakeBus) -> Bus:
        return make_bus()
