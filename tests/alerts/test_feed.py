"""Reading events while calls to the bus fail."""

from collections.abc import Sequence

import pytest

from alerts.feed import Feed
from bus import topics
from candlewright.wire.errors import BusUnavailable
from tests.alerts.test_server import event
from tests.fresh_bus import FreshBus


class Failing(FreshBus):
    """Fails once when triggers are looked up, which follows the read of their events."""

    fails = False

    def get(self, table: str, keys: Sequence[str]) -> list[bytes | None]:
        if self.fails and table == topics.TABLE_TRIGGERS:
            self.fails = False
            raise BusUnavailable("down")
        return super().get(table, keys)


def test_a_read_that_fails_halfway_loses_no_alert() -> None:
    bus = Failing()
    feed = Feed(bus, ["event"])
    feed.open()
    bus.publish(topics.TRIGGER_EVENTS, [event(1)])
    bus.fails = True
    with pytest.raises(BusUnavailable):
        feed.read()
    assert [each.alert_id for each in feed.read()] == ["dip-1"]
    assert feed.read() == []
