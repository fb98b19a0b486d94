import pytest

from ingestor.exchange import stock as exchange
from ingestor.venues import venue_of
from ingestor.venues.limits import Allowance, Call


@pytest.mark.parametrize("share", [0.1, 0.7, 1.0])
@pytest.mark.parametrize(
    "allowance", [Allowance("weight", 6_000, 60), Allowance("calls", 20, 2), Allowance("c", 60, 60)]
)
def test_no_window_spends_more_than_the_share(allowance: Allowance, share: float) -> None:
    capacity, per_second = allowance.shared(share, 2)
    assert per_second > 0
    if capacity <= allowance.limit * share / 2:
        assert capacity + per_second * allowance.window_seconds <= allowance.limit * share + 1e-9


def test_okx_counts_its_two_endpoints_apart_and_others_follow_ccxts_own_limit() -> None:
    stock = exchange.build(venue_of("GATE"), url="http://127.0.0.1:9", timeout_seconds=1)
    names = {
        venue_of("OKX").limits.allowance_of(call, stock).bucket
        for call in (Call.CANDLES, Call.HISTORY_CANDLES, Call.TICKER)
    }
    assert len(names) == 3
    allowance = venue_of("GATE").limits.allowance_of(Call.CANDLES, stock)
    assert allowance.limit / allowance.window_seconds == pytest.approx(1_000 / stock.rateLimit)
    assert venue_of("GATE").limits.cost_of(Call.CANDLES) == 1.0
