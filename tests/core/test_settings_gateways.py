"""The values that the gateways' settings accept, mainly from the environment."""

import pytest

from candlewright.wire.errors import ConfigurationError
from core.settings import load_settings

PREFIX = "CANDLEWRIGHT_GATEWAYS__NUMAFLOW__"
SOURCE = "CANDLEWRIGHT_INGESTOR__NUMAFLOW__TRADES__"


@pytest.mark.parametrize(
    ("text", "topics"), [("ticks", ("ticks",)), ('["ticks", "ohlc"]', ("ticks", "ohlc")), ('"a"', ("a",))]
)
def test_topics_of_the_environment_are_a_name_or_a_list(
    monkeypatch: pytest.MonkeyPatch, text: str, topics: tuple[str, ...]
) -> None:
    monkeypatch.setenv(f"{PREFIX}TOPIC", text)
    assert load_settings().gateways.numaflow.topic == topics


@pytest.mark.parametrize("text", ["[", "[]", '["a", "a"]', '[""]', ""])
def test_invalid_topics_are_refused(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv(f"{PREFIX}TOPIC", text)
    with pytest.raises(ConfigurationError, match="topic"):
        load_settings()


def test_a_pod_or_a_replica_names_the_consumer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NUMAFLOW_REPLICA", "3")
    assert load_settings().gateways.numaflow.consumer == "replica-3"
    monkeypatch.setenv("NUMAFLOW_POD", "flow-in-3")
    assert load_settings().gateways.numaflow.consumer == "flow-in-3"


def test_a_source_to_read_needs_the_gateways_process(monkeypatch: pytest.MonkeyPatch) -> None:
    assert not load_settings().has_gateways
    monkeypatch.setenv(f"{SOURCE}TOPIC", "ticks")
    monkeypatch.setenv(f"{SOURCE}MAPPING", '{"price": "p"}')
    settings = load_settings()
    assert settings.has_gateways
    assert dict(settings.ingestor.numaflow["trades"].mapping) == {"price": "p"}
