"""The tasks of workers. A task takes the settings and JSON data, and returns a description of its body, and the body.
Tasks import what they need when they run: a worker for queries loads no trigger engine.
"""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import orjson

from candlewright.extensions import extension
from candlewright.wire.errors import TriggerRejected
from console.times import iso
from core.background import start_thread
from core.settings import Settings

__all__ = ["TASKS"]

Done = tuple[dict[str, Any], bytes]
Task = Callable[[Settings, Mapping[str, Any]], Done]


def _query(settings: Settings, given: Mapping[str, Any]) -> Done:
    from console.rows import Form, check_times, encoded
    from console.sql.engine import Limits, run
    from iceberg.catalog import open_catalog
    from iceberg.scan import as_dataset
    from iceberg.views import definition_of, open_table

    form = Form(given["form"])
    limits = Limits(min(given["limit"], settings.console.sql_rows), settings.console.sql_memory_bytes)
    catalog = None

    def table_of(name: str) -> Any:
        nonlocal catalog
        catalog = catalog or open_catalog(settings)
        definition = definition_of(name)
        table = open_table(settings, definition, catalog) if definition is not None else None
        return as_dataset(table, definition) if table is not None and definition is not None else None

    views, is_for_text = given.get("views"), form is not Form.arrow
    with _stopped_after(settings.console.sql_seconds) as deliver:
        try:
            found = run(given["sql"], table_of, limits, views=views or {}, deliver=deliver, is_for_text=is_for_text)
        except TriggerRejected:
            if views is None and _may_read_views(given["sql"]):
                return {"needs_views": True}, b""
            raise
    if form is not Form.arrow:
        check_times(found.table)
    columns = [{"name": each.name, "type": str(each.type)} for each in found.table.schema]
    more = {"columns": columns, "truncated": found.is_truncated}
    body = b"".join(encoded(iter([found.table]), form, lambda: more))
    return {"truncated": found.is_truncated}, body


def _quality(settings: Settings, given: Mapping[str, Any]) -> Done:
    from console.work.examination import examined

    return {}, orjson.dumps(examined(settings, **given))


def _check(settings: Settings, given: Mapping[str, Any]) -> Done:
    from candlewright.wire.ingestor_pb2 import CEPTriggerRequest
    from candlewright_cep.types import flink_name
    from triggers.texts.check import TriggerRules, compile_trigger, diagnose_trigger

    rules = TriggerRules.of(settings.triggers, given["partitions"], frozenset(given["destinations"]))
    sql, parameters, views = given["sql"], given["parameters"], given["views"]
    request = CEPTriggerRequest(trigger_id="check", sql_pattern=sql, tickers=given["tickers"], parameters=parameters)
    found = diagnose_trigger(request, rules, views)
    if found.problems:
        first = found.problems[0]
        refused = TriggerRejected(first.message, first.line, first.column, hint=first.hint)
        refused.details = {"errors": [each.to_dict() for each in found.problems], "mended": found.mended}
        raise refused
    query = compile_trigger(sql, parameters, rules, views=views).query
    columns = [{"name": name, "type": flink_name(kind)} for name, kind in query.columns]
    return {}, orjson.dumps({"columns": columns, "warnings": list(found.warnings)})


def _try(settings: Settings, given: Mapping[str, Any]) -> Done:
    from console.rows import plain
    from console.work.trying import after

    found = extension("try")(
        settings,
        given["sql"],
        given["parameters"],
        ticker=given["ticker"],
        since=given["since"],
        table=None,
        progress=_no_progress,
        views=given["views"],
        as_seen=given["as_seen"],
    )
    is_over_bars = found.what.startswith("bars")
    answer = {
        "columns": [{"name": each.name, "type": str(each.type)} for each in found.table.schema],
        "rows": plain(found.table.slice(0, given["limit"])),
        "total_rows": found.table.num_rows,
        "fired_at": [iso(time) for time in found.fired],
        "suppressed": found.suppressed,
        "over": found.what,
        "input_rows": found.rows,
        "first": iso(found.first) if found.rows else None,
        "last": iso(found.last) if found.rows else None,
        "after": after(found.candles, found.fired) if is_over_bars and found.candles else [],
    }
    return {}, orjson.dumps(answer)


def _plan(settings: Settings, given: Mapping[str, Any]) -> Done:
    found = extension("plan")(
        settings,
        given["sql"],
        given["parameters"],
        tickers=given["tickers"],
        views=given["views"],
        readers=given.get("readers"),
    )
    return {}, orjson.dumps(found.to_dict())


def _explain(settings: Settings, given: Mapping[str, Any]) -> Done:
    from candlewright.client import TriggerInfo

    trigger = TriggerInfo(**{**given["trigger"], "tickers": tuple(given["trigger"]["tickers"])})
    found = extension("explain")(
        settings,
        trigger,
        given["views"],
        ticker=given["ticker"],
        at=given["at"],
        attempts=given["attempts"],
    )
    return {}, orjson.dumps(found.to_dict(trigger.trigger_id, given["readers"]))


def _language(settings: Settings, given: Mapping[str, Any]) -> Done:
    from iceberg import TABLES
    from triggers.texts.language import language

    found = language()
    stored = {
        table.name: [{"name": field.name, "type": str(field.type).upper(), "text": ""} for field in table.arrow_schema]
        for table in TABLES
    }
    return {}, orjson.dumps(found | {"tables": stored | found["tables"]})


def _may_read_views(sql: str) -> bool:
    from triggers.texts.views import may_read_views

    return may_read_views(sql)


def _of_text(task: Task) -> Task:
    """Without `views` (None), a text that is refused and may read some needs them. Turns errors of the trigger language
    into the client's own.
    """

    def run(settings: Settings, given: Mapping[str, Any]) -> Done:
        from candlewright_cep import SkipFailed
        from candlewright_cep import TriggerRejected as Rejected

        views = given["views"]
        try:
            return task(settings, {**given, "views": views or {}})
        except (Rejected, TriggerRejected) as error:
            if views is None and _may_read_views(given["sql"]):
                return {"needs_views": True}, b""
            if isinstance(error, TriggerRejected):
                raise
            raise TriggerRejected(error.message, error.line, error.column, hint=error.hint) from error
        except SkipFailed as error:
            raise TriggerRejected(str(error)) from error

    return run


TASKS: Mapping[str, Task] = {
    "query": _query,
    "quality": _quality,
    "check": _of_text(_check),
    "try": _of_text(_try),
    "plan": _of_text(_plan),
    "explain": _of_text(_explain),
    "language": _language,
}


@contextlib.contextmanager
def _stopped_after(seconds: float) -> Iterator[Callable[[Any], None]]:
    """Yields a function that takes the connection to interrupt after the time limit."""
    done = threading.Event()
    connections: list[Any] = []

    def watch() -> None:
        if not done.wait(seconds):
            for connection in connections:
                connection.interrupt()

    start_thread("sql-time", watch)
    try:
        yield connections.append
    finally:
        done.set()


def _no_progress(done: int, of: int) -> None:
    """Reports no progress, because the answer comes when it is done."""
