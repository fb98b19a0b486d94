"""What the alerts keep on the bus."""

from alerts.alert import Delivery, Outcome, Status
from alerts.store import AlertStore
from tests.fresh_bus import FreshBus


def test_a_delivery_that_is_sent_again_at_once_stays_on_the_bus() -> None:
    store = AlertStore(FreshBus())
    store.open()
    delivery = Delivery(
        destination="hook",
        alert_id="dip-1",
        kind="event",
        trigger_id="dip",
        ticker="BTC/USDT.BINANCE",
        order=1,
        title="title",
        text="text",
        body="{}",
        taken_at=1.0,
    )
    store.keep([delivery])
    store.finish([Outcome(delivery=delivery, status=Status.ABANDONED, at=2.0)])
    store.send_again([delivery.key])
    (again,) = store.asked_again(3.0)
    store.forget()
    assert store.waiting() == [again]
