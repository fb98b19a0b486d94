"""`candlewright trigger plan`, over real tables."""

import json
from contextlib import nullcontext
from types import SimpleNamespace

import pytest

from candlewright_platform.cli.triggers import explain, plan
from tests.candlewright_platform.cli.triggers.test_backtest import TICKER, data_dir  # noqa: F401
from tests.candlewright_platform.cli.triggers.test_explain import FALLS, Run, add, relay, run  # noqa: F401

MEAN = """SELECT ticker, AVG(price) OVER (
    PARTITION BY ticker ORDER BY ts ROWS BETWEEN 9 PRECEDING AND CURRENT ROW) AS mean FROM ticks"""


def test_a_text_is_measured_over_its_last_stored_hour(run: Run) -> None:  # noqa: F811
    shown = run("plan", "close > open", "--param", "period_seconds=60", "--ticker", TICKER)
    assert shown.exit_code == 0, shown.output
    assert "measured over 60 bars of 1m" in shown.stdout and "of a core" in " ".join(shown.stdout.split())
    assert all(len(line) <= 80 for line in shown.stdout.splitlines())
    told = json.loads(run("plan", MEAN, "--ticker", TICKER, "--output", "json").stdout)
    assert told["over"] == "trades" and told["note"] == ""
    measured = told["measured"]
    assert measured["tickers"] == [TICKER] and 0 < measured["rows"] <= 2_000 and measured["events"] == measured["rows"]
    assert measured["span_seconds"] <= 3_600 and measured["state_bytes"] > 0


def test_a_join_is_measured_over_the_last_hour_that_its_inputs_share(run: Run) -> None:  # noqa: F811
    sql = (
        "SELECT t.ts, t.price FROM ticks t ASOF JOIN ohlc o ON t.ticker = o.ticker AND t.ts >= o.close_time "
        "WHERE t.price < o.close"
    )
    shown = run("plan", sql, "--param", "period_seconds=60", "--ticker", TICKER)
    assert shown.exit_code == 0, shown.output
    told = " ".join(shown.stdout.split())
    assert "trades and bars of 1m" in told and "ASOF JOIN" in told and "not measured" not in told


def test_a_registered_trigger_is_planned_with_its_own_parameters_and_tickers(run: Run) -> None:  # noqa: F811
    bars = ("--ticker", TICKER, "--param", "period_seconds=60", "--param", "fall=0.991")
    add(run, "falls", FALLS, *bars)
    shown = run("plan", "falls")
    assert shown.exit_code == 0, shown.output
    assert "D AS close < PREV(close) * 0.991" in " ".join(shown.stdout.split())
    assert f"measured over 60 bars of 1m of {TICKER}" in " ".join(shown.stdout.split())


def test_plans_and_explanations_say_how_many_triggers_a_view_is_computed_for(
    run: Run,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    text = "SELECT ticker, ts, price, EMA(price, 9) OVER (PARTITION BY ticker ORDER BY ts) AS mean FROM ticks"
    trigger = SimpleNamespace(
        trigger_id="above", sql="SELECT price FROM smooth WHERE price > mean", tickers=(TICKER,), parameters={},
        views=("smooth",), registered_at=0,
    )  # fmt: skip
    platform = SimpleNamespace(
        triggers=SimpleNamespace(get=lambda _: trigger),
        views=SimpleNamespace(show=lambda _: SimpleNamespace(sql=text, trigger_count=2)),
    )
    for module in (plan, explain):
        monkeypatch.setattr(module, "connect", lambda **_: nullcontext(platform))
    shown = run("plan", "above")
    assert shown.exit_code == 0, shown.output
    once = "view smooth: the steps so far run once for all triggers that read it, 2 now"
    assert once in " ".join(shown.stdout.split())
    shown = run("explain", "above", "--at", "2024-02-01")
    assert shown.exit_code == 0, shown.output
    assert "view smooth: computed once for the 2 triggers that read it" in shown.stdout.splitlines()
    shown = run("explain", "above", "--at", "2024-02-01", "--output", "json")
    assert json.loads(shown.stdout)["views"] == [{"name": "smooth", "triggers": 2}]


def test_a_trigger_over_a_built_in_view_is_planned_and_explained(run: Run) -> None:  # noqa: F811
    add(run, "found", "SELECT * FROM engulfing", "--ticker", TICKER, "--param", "period_seconds=60")
    shown = run("plan", "found")
    assert shown.exit_code == 0, shown.output
    assert "view engulfing: the steps so far run once for all triggers that read it" in " ".join(shown.stdout.split())
    shown = run("explain", "found", "--at", "2024-01-01T03:00")
    assert "view engulfing: computed once for all triggers that read it" in shown.stdout.splitlines()
    shown = run("explain", "found", "--at", "2024-01-01T03:00", "--output", "json")
    assert json.loads(shown.stdout)["views"] == [{"name": "engulfing", "triggers": None}]


def test_a_plan_without_measurements_gives_the_reason(run: Run) -> None:  # noqa: F811
    assert "--ticker names the tickers" in run("plan", "price > 3").stdout
    shown = run("plan", "price > 3", "--ticker", "ETH/USDT.KRAKEN").stdout
    assert "not measured: no trades of these tickers are stored" in shown
    refused = run("plan", "prise > 3")
    assert refused.exit_code == 1 and refused.stderr.startswith("INVALID_SQL 1:1: unknown column 'prise'")
    assert run("plan").exit_code == 2
