"""What the alerts keep on the bus."""

from alerts.alert import Outcome, Status
from alerts.store import AlertStore
from tests.alerts.deliveries import delivery
from tests.fresh_bus import FreshBus


def test_a_delivery_that_is_sent_again_at_once_stays_on_the_bus() -> None:
    store = AlertStore(FreshBus())
    store.open()
    sent = delivery()
    store.keep([sent])
    store.finish([Outcome(delivery=sent, status=Status.ABANDONED, at=2.0)])
    store.send_again([sent.key])
    (again,) = store.asked_again(3.0)
    store.forget()
    assert store.waiting() == [again]
