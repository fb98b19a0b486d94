from venues.served import waiting_for_slot


def test_a_venue_with_slots_waits_for_nothing() -> None:
    assert waiting_for_slot("BINANCE", ["BINANCE", "OKX"]) == ""


def test_a_venue_without_slots_names_those_that_have_some() -> None:
    text = waiting_for_slot("KRAKEN", ["OKX", "BINANCE"])
    assert text == "waiting for a slot of KRAKEN (served now: BINANCE, OKX)"
    assert waiting_for_slot("KRAKEN", []) == "waiting for a slot of KRAKEN (served now: none)"


def test_a_long_list_of_venues_is_cut() -> None:
    text = waiting_for_slot("KRAKEN", [f"V{number:02}" for number in range(25)])
    assert text.endswith("V08, V09 and 15 more)")
