"""Every recipe of the cookbook finds its pattern over stored rows and on a stream; its figures are those of the
recording.
"""

import random
import shlex
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.wire.grid import SECOND
from candlewright.wire.ingestor_pb2 import CEPTriggerEvent, CEPTriggerRequest
from candlewright_cep.engine import evaluate_named
from documentation.cookbook import pages, picture
from documentation.cookbook.figures import Recordings, changes_after
from documentation.cookbook.recipes import all_recipes
from documentation.cookbook.recordings import Recording
from tests.documentation.cookbook_markets import MARKETS, OTHER, TICKER, Row
from tests.triggers import market
from tests.triggers.trigger_records import register, rows
from triggers.partition import TriggerPartition
from triggers.texts.check import LIVE_INPUTS, check_trigger

pytestmark = pytest.mark.timeout(60)

RECIPES = all_recipes()


def table_of(name: str, own: list[Row]) -> pa.Table:
    if not RECIPES[name].reads:
        return market.table_of(own, RECIPES[name].input)
    events = [row | {"fired_at": row["time"], "event_id": str(number)} for number, row in enumerate(own)]
    return pa.Table.from_pylist(events, LIVE_INPUTS["trigger_events"].schema)


def found_in(name: str, own: list[Row]) -> list[dict[str, Any]]:
    recipe = RECIPES[name]
    tables = {recipe.input: table_of(name, own)}
    return market.as_rows(evaluate_named(recipe.text.sql, tables, recipe.text.parameters, table_name=recipe.input))


def decided_in(name: str, own: list[Row]) -> list[dict[str, Any]]:
    """The rows that do not depend on the end of the input, unlike those of a window that would end later."""
    return [row for row in found_in(name, own) if row["at"] <= own[-1]["time"]]


def streamed_events(name: str, own: list[Row]) -> list[dict[str, Any]]:
    """A trigger over triggers, one event at a time, with a restart after each."""
    text = RECIPES[name].text
    partition = TriggerPartition()
    partition.process([], controls=[register(name, text.sql, **text.parameters)])
    found = []
    for number, row in enumerate(own):
        context = {"event_id": str(number), "ticker": row["ticker"]}
        event = CEPTriggerEvent(trigger_id=row["trigger_id"], timestamp=row["time"], context=context)
        output = partition.process([], events=[event.SerializeToString()])
        found += [row for fired in output.events for row in rows(fired)]
        partition = TriggerPartition.load(partition.save())
    return found


def streamed(names: list[str], own: list[Row], seed: int, *, restarts: bool = True) -> dict[str, list[dict[str, Any]]]:
    """The event rows of each text, in random micro-batches."""
    texts = {name: RECIPES[name].text for name in names}
    live, end = market.streamed(texts, market.records_of(own), random.Random(seed), restarts=restarts, sizes=(1, 7, 60))
    found: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for event in [*live, *end]:
        found[event.trigger_id] += rows(event)
    return found


def test_every_recipe_has_its_market() -> None:
    assert set(MARKETS) == set(RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_can_be_registered_without_warning(name: str) -> None:
    text = RECIPES[name].text
    request = CEPTriggerRequest(trigger_id="t", sql_pattern=text.sql, tickers=text.tickers, parameters=text.parameters)
    assert check_trigger(request).warnings == ()


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_finds_its_pattern_and_the_same_on_a_stream(name: str) -> None:
    own = MARKETS[name](random.Random(1), occurs=True)
    wanted = found_in(name, own)
    assert decided_in(name, own)
    found = streamed_events(name, own) if RECIPES[name].reads else streamed([name], own, 1)[name]
    assert sorted(found, key=repr) == sorted(wanted, key=repr)


@pytest.mark.parametrize("name", RECIPES)
def test_a_recipe_does_not_match_a_market_without_its_pattern(name: str) -> None:
    assert decided_in(name, MARKETS[name](random.Random(1), occurs=False)) == []


@pytest.mark.parametrize("name", RECIPES)
def test_a_match_needs_no_row_after_the_one_that_it_names(name: str) -> None:
    own = MARKETS[name](random.Random(2), occurs=True)
    matches = decided_in(name, own)
    assert matches
    for match in matches:
        assert match in found_in(name, [row for row in own if row["time"] <= match["at"]])


@pytest.mark.parametrize("input_name", ["ohlc", "ticks"])
def test_recipes_give_the_same_over_rough_markets_stored_and_streamed(input_name: str) -> None:
    make = market.bars if input_name == "ohlc" else market.trades
    own = make(3, (TICKER, OTHER), 300, start_ns=1_705_363_200 * 10**9)
    names = [
        name
        for name, each in RECIPES.items()
        if each.input == input_name and not each.text.tickers
        if each.text.period_seconds in (0, market.PERIOD)
    ]
    found = streamed(names, own, 3, restarts=False)
    for name in names:
        assert sorted(found[name], key=repr) == sorted(found_in(name, own), key=repr), name
    assert sum(map(bool, found.values())) >= len(names) // 2


@pytest.mark.parametrize("name", RECIPES)
def test_the_commands_of_a_page_run_as_pasted(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The data differ: a file stands for a table of the platform, and a trigger is checked instead of added."""
    monkeypatch.chdir(tmp_path)
    recipe = RECIPES[name]
    Path(f"{name}.sql").write_text(recipe.text.sql)
    own = MARKETS[name](random.Random(1), occurs=True)
    pq.write_table(table_of(name, own), f"{recipe.input}.parquet")
    tried, added = (shlex.split(line) for line in recipe.made.splitlines() if line.startswith("    candlewright"))
    assert [*tried[:3], *added[:3]] == ["candlewright", "trigger", "try", "candlewright", "trigger", "add"]
    if "--since" in tried:
        first = tried.index("--ticker")
        tried = [*tried[:first], "--input", f"{recipe.input}={recipe.input}.parquet"]
    result = CliRunner().invoke(app, [*tried[1:], "--output", "json"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert len(result.stdout.splitlines()) == len(found_in(name, own))
    checked = ["trigger", "check", *(word for word in added[3:] if word != "--follow")]
    assert CliRunner().invoke(app, checked).exit_code == 0


@pytest.fixture(scope="module")
def recordings(shared_data: Path) -> Recordings:
    return Recordings(shared_data, RECIPES)


@pytest.mark.parametrize("name", RECIPES)
def test_figures_and_picture_are_those_of_the_recording(name: str, recordings: Recordings) -> None:
    run = recordings.run(RECIPES[name])
    assert RECIPES[name].made == pages.made(run)
    assert RECIPES[name].image.read_text() == picture.svg(run)


@pytest.mark.parametrize("name", RECIPES)
def test_a_picture_is_small(name: str) -> None:
    assert RECIPES[name].image.stat().st_size <= 12_000


def test_the_index_has_every_recipe() -> None:
    text = pages.index(RECIPES)
    assert pages.INDEX.read_text() == text
    assert all(f"({name}.md)" in text for name in RECIPES)


def test_changes_after_a_match_count_from_its_own_close_and_only_where_they_are_recorded() -> None:
    own = [{"ticker": TICKER, "time": minute * 60 * SECOND, "close": 100.0 + minute} for minute in range(70)]
    table = market.table_of(market.completed(own, "ohlc", TICKER), "ohlc")
    at = pa.array([5 * 60 * SECOND, 60 * 60 * SECOND], pa.timestamp("ns", "UTC"))
    recording = Recording("a test", "", lambda _: table, 60)
    five, fifteen, sixty = changes_after(recording, table, pa.table({"ticker": [TICKER, TICKER], "at": at}))
    assert five.matches.tolist() == pytest.approx([5 / 105, 5 / 160])
    assert fifteen.matches.tolist() == pytest.approx([15 / 105])
    assert sixty.matches.tolist() == pytest.approx([60 / 105])
    assert [len(each.every) for each in (five, fifteen, sixty)] == [65, 55, 10]
    trades = market.table_of(
        [{"ticker": TICKER, "time": t * SECOND, "price": p} for t, p in ((0, 10.0), (4, 11.0), (9, 12.0))], "ticks"
    )
    at = pa.array([0], pa.timestamp("ns", "UTC"))
    (five, fifteen, _) = changes_after(
        Recording("a test", "", lambda _: trades), trades, pa.table({"ticker": [TICKER], "at": at})
    )
    assert five.matches.tolist() == pytest.approx([0.1])
    assert len(fifteen.matches) == 0
