"""Destinations and texts of a trigger's alerts."""

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from candlewright.wire.errors import InvalidRequest
from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
from triggers.texts.alerts import AlertAsked, render
from triggers.texts.check import TriggerRules, check_trigger

RULES = TriggerRules(destinations=frozenset({"phone", "bot"}))
SQL = "SELECT price AS bottom, size FROM ticks WHERE price < 5"


def check(message: str = "", to: str = "phone") -> tuple[str, ...]:
    parameters = {"alert_to": to, "alert_message": message}
    return check_trigger(CEPTriggerRequest(trigger_id="t", sql_pattern=SQL, parameters=parameters), RULES).warnings


def test_a_message_over_the_columns_is_taken_and_rendered() -> None:
    message = "{{ ticker }} fell to {{ (bottom * 100) | round(1) }}{% if size > 2 %}, big{% endif %}"
    assert check(message, "phone, bot") == ()
    values = {"ticker": "A/B.X", "bottom": 0.41567, "size": 3.0}
    assert render(message, values) == "A/B.X fell to 41.6, big"


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("{{ bottem }}", "alert_message 1:4: no column 'bottem'; did you mean 'bottom'?"),
        ("first\nthen {{ x }}", "alert_message 2:9: no column 'x'; the columns are bottom, size"),
        ("{{ bottom", "alert_message line 1: unexpected end"),
        ("{% for a in bottom %}{% endfor %}", "alert_message line 1: for is not allowed here"),
        ("{{ bottom.__class__ }}", "alert_message line 1: getattr is not allowed here"),
        ("{{ bottom['x'] }}", "alert_message line 1: getitem is not allowed here"),
        ("{{ range(9) }}", "alert_message line 1: call is not allowed here"),
        ("{% set a = 1 %}", "alert_message line 1: assign is not allowed here"),
        ("{{ bottom ** 9 }}", "alert_message line 1: pow is not allowed here"),
        ("{{ 'x' | center(9) }}", "alert_message line 1: no filter 'center'; allowed: abs, default"),
        ("{% include 'x' %}", "alert_message line 1: include is not allowed here"),
        ("x" * 2_001, "alert_message: longer than 2000 characters"),
        ("{{ bottom is cheap }}", "alert_message line 1: No test named 'cheap'"),
        ("{{ " + "(" * 600 + "1" + ")" * 600 + " }}", "alert_message: nested too deeply"),
        ("{{ 1" + " + 1" * 450 + " }}", "alert_message: nested too deeply"),
        ("{{ " + "not " * 450 + "bottom }}", "alert_message: nested too deeply"),
        ("{{ bottom" + " | abs" * 300 + " }}", "alert_message: nested too deeply"),
    ],
)
def test_a_bad_message_is_refused_with_its_place(message: str, problem: str) -> None:
    begin = time.thread_time()
    with pytest.raises(InvalidRequest) as refused:
        check(message)
    # 300 filters of filters took seconds.
    assert time.thread_time() - begin < 1.0
    assert str(refused.value).startswith(problem)


def test_a_registered_template_that_cannot_be_compiled_is_a_separate_error() -> None:
    for message in ("{{ 1" + " + 1" * 450 + " }}", "{{ " + "(" * 600 + "1" + ")" * 600 + " }}"):
        with pytest.raises(ValueError, match="nested too deeply"):
            render(message, {})


@pytest.mark.parametrize("template", ["{{ bottom | round(n, 'ceil') }}", "{{ n | round(0 - n) }}"])
def test_rounding_takes_no_powers_that_never_end(template: str) -> None:
    AlertAsked((), template).check(["bottom", "n"], None)
    with pytest.raises(ValueError, match="round takes a precision of at most 30 digits"):
        render(template, {"bottom": 41.5, "n": 2_000_000})


def test_a_long_value_is_shortened_before_it_is_repeated() -> None:
    tracemalloc.start()
    text = render("{{" + "~".join(["s"] * 400) + "}}", {"s": "x" * 1_000_000})
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert text == "x" * 4_000
    assert peak < 50_000_000


def test_an_unknown_destination_is_refused_with_those_that_are_configured() -> None:
    with pytest.raises(InvalidRequest, match="alert_to: no destination 'fax' in the settings; configured: bot, phone"):
        check(to="phone,fax")


@pytest.mark.parametrize(
    "message", ["{{ 'x' * 999999999 }}", "{{ '%0999999999d' % 1 }}", "{{ [1] }}", "{{ bottom / 0 }}"]
)
def test_texts_cannot_be_grown_by_arithmetic(message: str) -> None:
    with pytest.raises((InvalidRequest, ValueError)):
        check(message)
        render(message, {"bottom": 1})


@given(st.text(max_size=60))
def test_any_text_is_rendered_or_refused(message: str) -> None:
    try:
        AlertAsked((), message).check(["bottom"], None)
        assert len(render(message, {"bottom": 1.5, "ticker": "A/B.X", "trigger_id": "t", "time": "now"})) <= 4_000
    except (InvalidRequest, ValueError):
        pass


@given(
    st.lists(
        st.sampled_from(
            [
                "{{",
                "}}",
                "bottom",
                "ticker",
                "|",
                "round",
                "(",
                ")",
                "*",
                "%",
                "'x'",
                "9",
                "{%",
                "%}",
                "if",
                "endif",
                "~",
                "for",
                "in",
                ".",
                "[",
                "]",
                " ",
            ]
        ),
        max_size=12,
    )
)
def test_any_template_is_rendered_or_refused(words: list[str]) -> None:
    test_any_text_is_rendered_or_refused.hypothesis.inner_test(" ".join(words))  # type: ignore[attr-defined]


def test_triggers_that_differ_in_their_alerts_alone_share_their_stream() -> None:
    from protobuf import records_pb2 as records
    from triggers.running.trigger import Trigger

    texts = {
        Trigger.of(
            records.TriggerRegistration(trigger_id="t", sql=SQL, parameters={"alert_message": message}),
            (),
            0,
            bars_from=0,
            now_ns=0,
        ).text
        for message in ("one", "two")
    }
    assert len(texts) == 1
