"""Parameters of a trigger that name a function and its options."""

import pytest

from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from candlewright_cep import TriggerRejected
from triggers.texts.check import check_trigger
from triggers.udf.asked import FunctionAsked
from triggers.udf.options import Duration


def _calls(text: str) -> list[tuple[object, ...]]:
    asked = FunctionAsked.of({"udf": "f", "udf.x": text})
    assert asked is not None
    assert {name for name, _ in asked.calls} <= {"x"}
    return [tuple(arguments) for _, arguments in asked.calls]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("'it''s, so; it is'", [("it's, so; it is",)]),
        ("3", [(3,)]),
        ("-3", [(-3,)]),
        ("3.0, 1e3", [(3.0, 1000.0)]),
        ("TRUE; false", [(True,), (False,)]),
        ("INTERVAL '10' SECOND", [(Duration(10_000_000_000),)]),
        ("interval '1.5' minute, 'a'", [(Duration(90_000_000_000), "a")]),
        ("", [()]),
        (";", [(), ()]),
    ],
)
def test_options_are_typed_literals(text: str, expected: list[tuple[object, ...]]) -> None:
    found = _calls(text)
    assert found == expected
    assert [list(map(type, call)) for call in found] == [list(map(type, call)) for call in expected]


@pytest.mark.parametrize(
    "text",
    [
        "abc",
        "1 2",
        "1,",
        "'a",
        "INTERVAL '1' MONTH",
        "INTERVAL 'x' SECOND",
        "- -1",
        "-'a'",
        "9223372036854775808",
        ":p",
        "INTERVAL 'NaN' SECOND",
        "INTERVAL 'Infinity' DAY",
        "INTERVAL '1e999999999' DAY",
        "9" * 5_000,
    ],
)
def test_an_invalid_literal_is_refused(text: str) -> None:
    with pytest.raises(TriggerRejected):
        _calls(text)


def _check(**parameters: str) -> tuple[tuple[str, ...], FunctionAsked | None]:
    request = CEPTriggerRequest(trigger_id="t", sql_pattern="price > 1", parameters=parameters)
    checked = check_trigger(request)
    return checked.warnings, checked.function


def test_trigger_without_the_parameter_names_no_function_and_its_options_mean_nothing() -> None:
    assert _check() == ((), None)
    warnings, function = _check(**{"udf.x": "not a literal"})
    assert function is None
    assert "nothing uses the parameter udf.x" in warnings[0]


def test_trigger_with_the_parameter_uses_its_options() -> None:
    warnings, function = _check(udf="f", **{"udf.x": "1", "udfx": "2"})
    assert function is not None
    assert (function.name, function.calls) == ("f", (("x", (1,)),))
    assert len(warnings) == 1


@pytest.mark.parametrize("parameters", [{"udf": ""}, {"udf": "f", "cooldown_seconds": "5"}])
def test_impossible_parameters_are_refused(parameters: dict[str, str]) -> None:
    with pytest.raises(TriggerRejected, match="udf"):
        _check(**parameters)
