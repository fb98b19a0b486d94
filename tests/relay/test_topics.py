import pytest

from relay import topics
from relay.topics import AllFinals, ClientFinals, RequestFinal, Wanted


@pytest.mark.parametrize(
    ("subscription", "wanted"),
    [
        (b"", AllFinals("")),
        (b"RES", AllFinals("RES")),
        (b"RESPONSE:", AllFinals("RESPONSE:")),
        (b"HISTORY_READY:", AllFinals("HISTORY_READY:")),
        (b"RESPONSE:a", ClientFinals("a")),
        (b"HISTORY_READY:r:1", RequestFinal("r:1")),
        (b"TICKS:BTC/USDT.BINANCE", None),
        (b"RESPONSES", None),
        (b"\xff\xfe", None),
    ],
)
def test_a_subscription_gets_the_finals_of_the_topic_it_names(subscription: bytes, wanted: Wanted | None) -> None:
    assert topics.wanted_finals(subscription) == wanted


def test_a_final_goes_to_the_request_and_to_the_client_when_there_is_one() -> None:
    assert topics.final_topics("r", "c") == ("HISTORY_READY:r", "RESPONSE:c")
    assert topics.final_topics("r", "") == ("HISTORY_READY:r",)
    assert topics.request_topic("r", "c") == "RESPONSE:c"
    assert topics.request_topic("r", "") == "HISTORY_READY:r"
