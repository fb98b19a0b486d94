"""Registered views over real sockets: kept, read by triggers, which start afresh when a view of theirs changes."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from click.testing import Result
from typer.testing import CliRunner

from bus import topics as bus_topics
from candlewright.cli.app import app
from candlewright.client import Client, InvalidTrigger, PlatformRefused, ViewNotFound, aconnect, connect
from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.settings import RelayLimits
from tests.relay import pipeline
from tests.relay.conftest import Start
from tests.relay.harness import Platform

LARGE = "SELECT * FROM ticks WHERE size >= 2"
SMALL = "SELECT * FROM ticks WHERE size < 1"
FALLS = "CREATE VIEW falls AS SELECT ticker, ts, price FROM large WHERE price < 10"
READER = "SELECT * FROM falls WHERE price > 1"


@contextmanager
def client_of(platform: Platform) -> Iterator[Client]:
    addresses = [(platform.relay.requests_address, platform.relay.notifications_address)]
    with pipeline.running(platform.bus), connect(addresses) as client:
        yield client


def test_a_view_is_registered_once_and_described(start_relay: Start) -> None:
    with client_of(start_relay()) as c:
        first = c.views.add("large", LARGE)
        assert (first.is_new, first.restarted, first.warnings) == (True, (), ())
        again = c.views.add("large", LARGE)
        assert (again.is_new, again.version) == (False, first.version)
        c.views.add("falls", FALLS)
        found = {each.name: each for each in c.views.list()}
        assert list(found) == ["falls", "large"]
        assert found["large"].read_by == ("falls",)
        assert found["falls"].reads == ("large",)
        shown = c.views.show("Falls")
        assert (shown.sql, shown.columns) == (
            FALLS,
            {"ticker": "STRING", "ts": "TIMESTAMP_LTZ(9)", "price": "DOUBLE"},
        )
        with pytest.raises(ViewNotFound, match="no view other is registered"):
            c.views.show("other")


@pytest.mark.parametrize(
    ("name", "sql", "said"),
    [
        ("v", "SELECT prise FROM ticks", r"1:8: unknown column 'prise' \(did you mean 'price'\?\)"),
        ("v", "SELECT * FROM V", "the view 'v' reads itself"),
        ("v", "CREATE VIEW other AS SELECT * FROM ticks", "1:13: the text names the view 'other' instead of 'v'"),
        ("v", "SELECT * FROM ticks WHERE price > :limit", "1:35: no value for the parameter :limit"),
        ("v", "price > 1", "1:1: expected SELECT"),
    ],
)
def test_an_invalid_text_is_refused_with_its_position(platform: Platform, name: str, sql: str, said: str) -> None:
    with client_of(platform) as c:
        with pytest.raises(InvalidTrigger, match=said):
            c.views.add(name, sql)
        assert c.views.list() == []


def test_names_that_are_inputs_or_no_names_are_refused(platform: Platform) -> None:
    with client_of(platform) as c:
        for name, said in (
            ("Ticks", "name of an input"),
            ("a b", "has 1 to 100 letters"),
            ("", "has 1 to 100 letters"),
        ):
            with pytest.raises(PlatformRefused, match=said):
                c.views.add(name, LARGE)


def test_a_trigger_is_registered_with_its_views_and_they_stay_while_it_does(start_relay: Start) -> None:
    platform = start_relay()
    with client_of(platform) as c:
        c.views.add("large", LARGE)
        c.views.add("falls", FALLS)
        c.triggers.add(READER, trigger_id="t").close()
        entry = pipeline.entries(platform.bus)["t"].registration
        assert dict(entry.views) == {"large": LARGE, "falls": FALLS}
        assert c.triggers.get("t").views == ("falls", "large")
        assert c.views.show("large").triggers == ("t",)
        for name, said in (("large", "by the view falls and trigger t"), ("falls", "by the trigger t")):
            with pytest.raises(PlatformRefused, match=f"IN_USE.*{said}"):
                c.views.remove(name)
        c.triggers.remove("t")
        c.views.remove("falls")
        c.views.remove("large")
        with pytest.raises(ViewNotFound):
            c.views.remove("large")
        with pytest.raises(InvalidTrigger, match="unknown table 'falls'"):
            c.triggers.add(READER, trigger_id="t")


def test_a_view_that_changes_starts_its_readers_afresh_and_names_them(start_relay: Start) -> None:
    platform = start_relay()
    with client_of(platform) as c:
        c.views.add("large", LARGE)
        c.views.add("falls", FALLS)
        c.triggers.add(READER, trigger_id="t").close()
        c.triggers.add("price > 1", trigger_id="other").close()
        with pytest.raises(PlatformRefused, match="Another view is registered as 'large'"):
            c.views.add("large", SMALL)
        changed = c.views.add("large", SMALL, replace=True)
        assert changed.restarted == ("t",)
        entries = pipeline.entries(platform.bus)
        assert dict(entries["t"].registration.views) == {"large": SMALL, "falls": FALLS}
        versions = [version for name, version in pipeline.registrations(platform.bus) if name == "t"]
        assert len(versions) == 2
        assert versions[1] > versions[0]
        assert len([name for name, _ in pipeline.registrations(platform.bus) if name == "other"]) == 1
        assert c.views.show("large").version > changed.version - 1


def test_a_change_that_a_reader_would_not_survive_is_refused(start_relay: Start) -> None:
    platform = start_relay()
    with client_of(platform) as c:
        c.views.add("large", LARGE)
        c.views.add("falls", FALLS)
        c.triggers.add("SELECT size FROM large WHERE size > 3", trigger_id="t").close()
        with pytest.raises(PlatformRefused, match=r"The view 'falls' reads it and would be refused: .*'price'"):
            c.views.add("large", "SELECT ticker, ts, size FROM ticks", replace=True)
        with pytest.raises(PlatformRefused, match=r"The trigger 't' reads it and would be refused: .*'size'"):
            c.views.add("large", "SELECT ticker, ts, price FROM ticks", replace=True)
        with pytest.raises(InvalidTrigger, match="reads itself"):
            c.views.add("large", "SELECT * FROM falls", replace=True)
        assert c.views.show("large").sql == LARGE
        assert len(pipeline.registrations(platform.bus)) == 1


def test_views_survive_a_restart_and_a_change_that_was_cut_off_is_finished(start_relay: Start) -> None:
    platform = start_relay()
    with client_of(platform) as c:
        c.views.add("large", LARGE)
        c.triggers.add("SELECT * FROM large", trigger_id="t").close()
    platform.relay.close()
    # An earlier run stored the change and died before it registered the trigger again.
    entry = rec.ViewEntry.FromString(platform.bus.items(bus_topics.TABLE_VIEWS)["large"])
    entry.sql = SMALL
    platform.bus.put(bus_topics.TABLE_VIEWS, {"large": entry.SerializeToString()})
    with client_of(start_relay(platform.bus)) as c:
        assert [each.sql for each in c.views.list()] == [SMALL]
        assert c.triggers.get("t").views == ("large",)
        assert dict(pipeline.entries(platform.bus)["t"].registration.views) == {"large": SMALL}
        assert len(pipeline.registrations(platform.bus)) == 2


def test_too_many_views_are_refused(start_relay: Start) -> None:
    with client_of(start_relay(limits=RelayLimits(max_views=1))) as c:
        c.views.add("large", LARGE)
        with pytest.raises(PlatformRefused, match="1 views are registered, and 1 are allowed"):
            c.views.add("small", SMALL)


def test_a_change_is_answered_by_request_id(platform: Platform) -> None:
    request = cw.ViewRequest(request_id="r", name="ticks", sql=LARGE)
    ack = platform.client().ask(request)
    assert (ack.request_id, ack.status) == ("r", cw.ViewAck.ERROR)


async def test_the_async_twin_makes_the_same_calls(start_relay: Start) -> None:
    platform = start_relay()
    addresses = [(platform.relay.requests_address, platform.relay.notifications_address)]
    with pipeline.running(platform.bus):
        async with aconnect(addresses) as c:
            assert (await c.views.add("large", LARGE)).is_new
            assert [each.name for each in await c.views.list()] == ["large"]
            assert (await c.views.show("large")).sql == LARGE
            assert len(await c.views.list(built_in=True)) == 62
            await c.views.remove("large")
            assert await c.views.list() == []


def test_the_command_line(start_relay: Start, monkeypatch: pytest.MonkeyPatch) -> None:
    platform = start_relay()
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__REQUESTS_BIND", platform.relay.requests_address)
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND", platform.relay.notifications_address)

    def run(*arguments: str) -> tuple[int, str, str]:
        """Its code, and the last line of either output: the relay's log goes there too."""
        found = CliRunner().invoke(app, ["view", *arguments])
        return found.exit_code, *(text.splitlines()[-1] if text else "" for text in (found.stdout, found.stderr))

    with client_of(platform) as c:
        assert run("add", "large", "--sql", LARGE)[:2] == (0, "REGISTERED large")
        assert run("add", "large", "--sql", LARGE)[1] == "ALREADY_REGISTERED large"
        c.triggers.add("SELECT * FROM large", trigger_id="t").close()
        found = run("add", "large", "--sql", SMALL, "--replace")
        assert found == (0, "REGISTERED large", "trigger t reads the view and starts afresh")
        assert json.loads(run("list", "--output", "json")[1])["sql"] == SMALL
        assert json.loads(run("show", "large", "--output", "json")[1])["triggers"] == ["t"]
        assert run("show", "large")[1] == SMALL
        assert run("remove", "large")[0] == 1
        assert run("add", "other", "--sql", "SELECT prise FROM ticks")[0] == 1
        assert run("show", "hammer")[1].endswith("WHERE value <> 0")
        assert "CDL_TWO" not in run("list", "--built-in", "--output", "json")[1]
        c.triggers.remove("t")
        assert json.loads(run("remove", "large", "--output", "json")[1]) == {"name": "large", "status": "REMOVED"}


def test_a_text_is_checked_and_tried_over_registered_views(
    start_relay: Start, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    platform = start_relay()
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__REQUESTS_BIND", platform.relay.requests_address)
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__NOTIFICATIONS_BIND", platform.relay.notifications_address)
    trades = pa.table({"ticker": ["A"] * 4, "ts": [1, 2, 3, 4], "price": [3.0, 8.0, 12.0, 0.5], "size": [2.0, 1, 2, 9]})
    file = tmp_path / "trades.parquet"
    pq.write_table(trades, file)

    def run(name: str, *arguments: str) -> Result:
        return CliRunner().invoke(app, ["trigger", name, "--sql", READER, "--output", "json", *arguments])

    with client_of(platform) as c:
        c.views.add("large", LARGE)
        c.views.add("falls", FALLS)
        found = run("try", "--input", str(file), "--view", "falls")
        assert found.stdout.splitlines()[-1] == '{"ticker": "A", "ts": 1, "price": 3.0}'
        assert json.loads(run("check", "--view", "falls").stdout.splitlines()[-1])["ok"]
        assert json.loads(run("check").stdout.splitlines()[-1])["errors"][0]["message"] == "unknown table 'falls'"
        # A file stands for the view that is registered under its name.
        own = tmp_path / "large.sql"
        own.write_text("CREATE VIEW large AS SELECT * FROM ticks WHERE size < 2")
        mixed = run("try", "--input", str(file), "--view", "falls", "--view", str(own))
        assert mixed.stdout.splitlines()[-1] == '{"ticker": "A", "ts": 2, "price": 8.0}'
        missing = run("check", "--view", "other")
        assert missing.exit_code == 1
        assert "no view other is registered" in str(missing.exception or missing.stderr)


HAMMERS = "SELECT ticker, value FROM hammer"


def test_built_in_views_are_shown_and_read_without_being_registered(start_relay: Start) -> None:
    platform = start_relay()
    with client_of(platform) as c:
        assert c.views.list() == []
        found = {each.name: each for each in c.views.list(built_in=True)}
        assert len(found) == 62 and {"hammer", "three_white_soldiers", "candle_patterns"} <= found.keys()
        hammer = c.views.show("Hammer")
        assert hammer == found["hammer"]
        assert (hammer.version, hammer.columns["value"], "CDL_HAMMER(open, " in hammer.sql) == (0, "DOUBLE", True)
        assert len(found["candle_patterns"].columns) == len(hammer.columns) - 1 + 61
        c.views.add("strong", "SELECT * FROM hammer WHERE close > open")
        assert c.views.show("strong").reads == ()
        c.triggers.add(HAMMERS, trigger_id="t").close()
        c.triggers.add("SELECT * FROM strong", trigger_id="s").close()
        entries = pipeline.entries(platform.bus)
        assert [dict(entries[name].registration.views).keys() for name in "ts"] == [set(), {"strong"}]


def test_the_name_of_a_built_in_view_is_refused_unless_it_was_in_use_before(start_relay: Start) -> None:
    platform = start_relay()
    with client_of(platform) as c:
        with pytest.raises(PlatformRefused, match="'hammer' is a built-in view, which other texts may read; choose"):
            c.views.add("Hammer", LARGE)
        with pytest.raises(PlatformRefused, match="'hammer' is a built-in view, which cannot be removed"):
            c.views.remove("hammer")
    platform.relay.close()
    platform.bus.put(bus_topics.TABLE_VIEWS, {"hammer": rec.ViewEntry(name="hammer", sql=LARGE).SerializeToString()})
    with client_of(start_relay(platform.bus)) as c:
        assert [each.sql for each in (*c.views.list(), c.views.show("hammer"))] == [LARGE, LARGE]
        assert c.views.add("hammer", SMALL, replace=True).is_new
        c.triggers.add("SELECT price FROM hammer", trigger_id="t").close()
        assert dict(pipeline.entries(platform.bus)["t"].registration.views) == {"hammer": SMALL}
        c.triggers.remove("t")
        c.views.remove("hammer")
        assert c.views.show("hammer").version == 0


def test_triggers_may_not_read_each_others_events_in_a_circle(start_relay: Start) -> None:
    def over(*names: str) -> str:
        listed = ", ".join(f"'{name}'" for name in names)
        return f"SELECT event_id FROM trigger_events WHERE trigger_id IN ({listed})"

    with client_of(start_relay()) as c:
        c.triggers.add(over("b", "x"), trigger_id="a").close()
        c.triggers.add(over("c"), trigger_id="b").close()
        with pytest.raises(PlatformRefused, match="would read its own events: c reads a reads b reads c"):
            c.triggers.add(over("a"), trigger_id="c")
        with pytest.raises(InvalidTrigger, match="reads its own events"):
            c.triggers.add(over("c"), trigger_id="c")
        c.views.add("source", over("x"))
        c.triggers.add("SELECT * FROM source", trigger_id="c").close()
        with pytest.raises(PlatformRefused, match="would read its own events: c reads a reads b reads c"):
            c.views.add("source", over("a"), replace=True)
        c.triggers.remove("b")
        assert c.views.add("source", over("a"), replace=True).restarted == ("c",)
