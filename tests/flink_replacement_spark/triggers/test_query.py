"""What the trigger query counts of its steps."""

from core import metrics
from flink_replacement_spark.triggers.query import TriggerHealth


def test_degraded_skips_have_a_separate_counter() -> None:
    name = "candlewright_spark_trigger_degraded_skips_total"
    before = metrics.REGISTRY.get_sample_value(name) or 0.0
    health = TriggerHealth()
    health.count({"records": 3, "events": 1, "degraded_skips": 2}, {})
    assert metrics.REGISTRY.get_sample_value(name) == before + 2
    assert (health.records, health.events) == (3, 1)
