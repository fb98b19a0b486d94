"""Every benchmark that runs Spark can run it on a cluster."""

from tests.conftest import ROOT

#: What a module names that starts Spark itself, or a platform.
STARTS = ("start_session(", "PrivatePlatform(")
#: Is Flink's side of a comparison, and starts only a relay.
RELAY_ALONE = {"flink_bus.py"}


def test_each_benchmark_that_runs_spark_accepts_a_master() -> None:
    sources = {path.name: path.read_text() for path in sorted((ROOT / "benchmarks").rglob("*.py"))}
    starting = {name for name, text in sources.items() if "def main(" in text and any(each in text for each in STARTS)}
    assert {"ohlc.py", "latency.py", "bench_triggers.py", "requests.py"} <= starting
    assert [name for name in sorted(starting - RELAY_ALONE) if "add_master(" not in sources[name]] == []
