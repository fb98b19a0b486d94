"""The immediate answer to a trigger that names one of the operator's functions."""

import sys
from pathlib import Path

import pytest

from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from core.settings_gateways import KapacitorFunctionSettings
from relay.triggers.asked import Ack
from relay.triggers.checks import check
from relay.triggers.events import Refused, Sound
from triggers.texts.check import TriggerRules
from triggers.udf.known import KnownFunctions

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {
    "sums": KapacitorFunctionSettings(
        prog=sys.executable,
        args=(str(ROOT / "tests" / "triggers" / "udf" / "function.py"),),
        env={"PYTHONPATH": str(ROOT)},
        timeout_seconds=20,
    ),
    "gone": KapacitorFunctionSettings(prog="/no/such/program"),
}


@pytest.fixture(scope="module")
def functions() -> KnownFunctions:
    return KnownFunctions(FUNCTIONS)


def _outcome(functions: KnownFunctions, sql: str = "price > 1", **parameters: str) -> Sound | Refused:
    return check(CEPTriggerRequest(trigger_id="t", sql_pattern=sql, parameters=parameters), TriggerRules(), functions)


def test_a_refusal_is_a_sentence_that_names_parameters_as_they_are_written(functions: KnownFunctions) -> None:
    found = _outcome(functions, alert_to="x", alert_message="{{ prise }}")
    assert isinstance(found, Refused)
    assert found.text == "alert_message 1:4: no column 'prise'; did you mean 'price'?"


@pytest.mark.processes
@pytest.mark.parametrize(
    "options", [{}, {"udf.times": "2"}, {"udf.label": "'a', INTERVAL '5' SECOND; 'b', INTERVAL '1' MINUTE"}]
)
def test_function_that_takes_the_options_is_sound(functions: KnownFunctions, options: dict[str, str]) -> None:
    assert _outcome(functions, udf="sums", **options) == Sound((), False, 0)


@pytest.mark.processes
@pytest.mark.parametrize(
    ("parameters", "status", "told"),
    [
        (
            {"udf": "/bin/sh"},
            Ack.ERROR,
            "There is no function '/bin/sh'; the settings of this platform have gone, sums.",
        ),
        ({"udf": "sums", "udf.nope": "1"}, Ack.ERROR, "no option 'nope'; it has label, times"),
        ({"udf": "sums", "udf.times": "2.0"}, Ack.ERROR, "argument 1 of the option times is DOUBLE, expected INT"),
        ({"udf": "sums", "udf.times": "two"}, Ack.INVALID_SQL, "the parameter udf.times is not a literal"),
        ({"udf": "gone"}, Ack.ERROR, "The function gone is unavailable: it cannot be started"),
        ({"udf": "sums", "cooldown_seconds": "1"}, Ack.INVALID_SQL, "cannot be combined"),
    ],
)
def test_a_function_that_cannot_run_is_refused_with_the_reason(
    functions: KnownFunctions, parameters: dict[str, str], status: int, told: str
) -> None:
    outcome = _outcome(functions, **parameters)
    assert isinstance(outcome, Refused)
    assert outcome.status == status
    assert told in outcome.text


@pytest.mark.processes
def test_a_function_is_queried_once_a_minute_even_if_it_fails(tmp_path: Path) -> None:
    notes = tmp_path / "asked"
    script = f"echo x >> {notes}; exec {sys.executable} {FUNCTIONS['sums'].args[0]}"
    sums = FUNCTIONS["sums"].model_copy(update={"prog": "/bin/sh", "args": ("-c", script)})
    fails = FUNCTIONS["sums"].model_copy(update={"prog": "/bin/sh", "args": ("-c", f"echo y >> {notes}; exit 3")})
    now = [0.0]
    functions = KnownFunctions({"sums": sums, "fails": fails}, clock=lambda: now[0])
    for second in (0.0, 14.0, 16.0, 59.0, 61.0):
        now[0] = second
        assert isinstance(_outcome(functions, udf="sums"), Sound)
        assert isinstance(_outcome(functions, udf="fails"), Refused)
    assert notes.read_text().split() == ["x", "y", "y", "y", "x"]


def test_a_text_that_joins_follows_each_of_its_inputs(functions: KnownFunctions) -> None:
    sql = """SELECT m.close FROM ohlc m ASOF JOIN ohlc f ON m.ticker = f.ticker AND m.close_time >= f.close_time
        AND f.period_seconds = 300 ASOF JOIN ticks t ON m.ticker = t.ticker AND m.close_time >= t.ts"""
    assert _outcome(functions, sql, period_seconds="60") == Sound((), False, 60, (300, 0))
    long = sql.replace("300", "604801")
    assert _outcome(functions, long, period_seconds="60") == Refused(
        Ack.ERROR, "Bars of 604801 seconds are not made; a bar lasts from 1 second to one week."
    )
