"""`candlewright status`: live tickers and queries, then the platform's parts."""

import contextlib
import json
import shutil
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import typer

from candlewright.cli.loading import settings_for
from candlewright.cli.output import Output, json_line, print_table, say
from candlewright.settings import ClientConfig
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.times import iso_seconds

_STATUS_TIMEOUT_SECONDS = 5.0
_WATCH_SECONDS = 2.0
#: Live tickers that a table shows: the slowest ones, which may need a look.
SHOWN_TICKERS = 10
#: Lines of a small screen, and how many of them are not tickers (with three queries and a warning).
MIN_TICKERS, BRIEF_LINES = 3, 18
#: The longest name of a machine in the table of roles; a longer one loses its middle.
MAX_HOST = 20
_CLEAR = "\x1b[H\x1b[2J\x1b[3J"

Row = Mapping[str, Any]


def fetch_status(settings: ClientConfig) -> dict[str, Any]:
    """The supervisor's status page; raises CandlewrightError if nothing answers."""
    host, _, port = settings.http.bind.rpartition(":")
    url = f"http://{'127.0.0.1' if host in ('', '0.0.0.0', '*', '[::]') else host}:{port}/status"
    try:
        with urllib.request.urlopen(url, timeout=_STATUS_TIMEOUT_SECONDS) as answer:
            page = json.load(answer)
    except (OSError, ValueError) as error:
        raise CandlewrightError(f"no platform answers at {url}: start one with `candlewright up`") from error
    if not isinstance(page, dict):
        raise CandlewrightError(f"the server at {url} is not candlewright")
    return page


def running_elsewhere(settings: ClientConfig) -> str:
    """A sentence if the running platform's data directory differs from the settings; else empty."""
    try:
        found = str(fetch_status(settings).get("data_dir") or "")
    except CandlewrightError:
        return ""
    is_another = found and Path(found) != Path(settings.data_dir).absolute()
    return f"the running platform keeps its data in {found}: add --data-dir {found}" if is_another else ""


def status(output: Output, *, config: Path | None, watch: bool = False) -> None:
    settings = settings_for(config)
    if not watch:
        page = fetch_status(settings)
        show(page, output)
        if not _is_well(page):
            raise typer.Exit(1)
        return
    with contextlib.suppress(KeyboardInterrupt):
        while True:
            _show_again(settings, output)
            time.sleep(_WATCH_SECONDS)


def show(page: Row, output: Output, lines: int | None = None) -> None:
    """`lines`: height of the screen; parts and roles are shown in one line each if their tables do not fit."""
    if output is Output.json:
        for row in (*part_rows(page), *role_rows(page), *ticker_rows(page), *query_rows(page), *work_rows(page)):
            print(json_line(row))
        return
    is_brief = lines is not None and _lines_of(page) > lines
    _print_tickers(page, max(MIN_TICKERS, lines - BRIEF_LINES) if lines is not None and is_brief else SHOWN_TICKERS)
    _print_queries(page)
    if is_brief:
        _print_briefly(page)
    else:
        _print_parts(page)
        _print_roles(page)
    _print_work(page)
    for warning in page.get("warnings", []):
        say(f"warning: {warning}")
    for problem in page.get("problems", []):
        say(f"problem: {problem}")
    if not _is_well(page):
        say("the platform is unhealthy" if page.get("ready") else "the platform is not ready")


# ---- rows, as --output json has them


def part_rows(page: Row) -> list[Row]:
    return [
        {
            "part": name,
            "state": _state(part),
            "pid": part.get("pid"),
            "restarts": part.get("restarts"),
            "memory_bytes": part.get("memory_bytes"),
            "problems": part.get("problems", []),
            "warnings": part.get("warnings", []),
            "status": part.get("status", {}),
        }
        for name, part in page.get("parts", {}).items()
    ]


def role_rows(page: Row) -> list[Row]:
    return [{"role": name, **state} for name, state in page.get("roles", {}).items()]


def ticker_rows(page: Row) -> list[Row]:
    """The ticker that has been silent for longest comes first."""
    found: dict[str, Row] = {}
    bars = {ticker: age for part in _statuses(page) for ticker, age in part.get("newest_bar_seconds_ago", {}).items()}
    for part in _statuses(page):
        rates = part.get("trades_per_second", {})
        for ticker, age in part.get("last_frame_seconds_ago", {}).items():
            if ticker not in found or age < found[ticker]["age_seconds"]:
                found[ticker] = {
                    "ticker": ticker,
                    "age_seconds": age,
                    "newest_bar_seconds": bars.get(ticker),
                    "trades_per_second": rates.get(ticker),
                }
    return sorted(found.values(), key=lambda row: (-row["age_seconds"], row["ticker"]))


def query_rows(page: Row) -> list[Row]:
    return [{"query": name, **query} for part in _statuses(page) for name, query in part.get("queries", {}).items()]


def work_rows(page: Row) -> list[Row]:
    """One row: requests, triggers, disk. Nothing if no part reports them."""
    row: dict[str, Any] = {}
    for part in _statuses(page):
        if part.get("part") == "broker" and "requests" in part:
            row |= {"requests": part["requests"], "jobs": part.get("jobs"), "queued": part.get("queued")}
        if part.get("part") == "relay":
            row |= {name: part[name] for name in ("triggers", "keep") if name in part}
        if part.get("executors") is not None:
            row["executors"] = part["executors"]
    if page.get("disk"):
        row["disk"] = page["disk"]
    return [row] if row else []


# ---- tables


def _lines_of(page: Row) -> int:
    """Lines that the tables take: each has four besides its rows."""
    counts = (
        min(len(ticker_rows(page)), SHOWN_TICKERS),
        *(len(rows(page)) for rows in (query_rows, part_rows)),
        sum(max(1, len(row["standbys"])) for row in role_rows(page)),
    )
    return sum(count + 4 for count in counts if count) + sum(len(list(_work_lines(row))) for row in work_rows(page)) + 1


def _print_briefly(page: Row) -> None:
    """Parts and roles, without the healthy ones."""
    rows = part_rows(page)
    ready = [row for row in rows if row["state"] == "ready"]
    others = ", ".join(f"{row['part']} is {row['state']}" for row in rows if row not in ready)
    restarts = sum(row["restarts"] or 0 for row in rows)
    memory = _size(sum(row["memory_bytes"] or 0 for row in rows))
    print(f"parts: {len(ready)} of {len(rows)} ready{others and f' ({others})'}, {restarts} restarts, {memory}")
    standbys = ", ".join(f"{row['role']} {len(row['standbys'])}" for row in role_rows(page) if row["standbys"])
    vacant = "".join(f"; no process has the role {row['role']}" for row in role_rows(page) if not row["holder"])
    print(f"standbys: {standbys or 'none'}{vacant}")


def _print_tickers(page: Row, most: int) -> None:
    rows = ticker_rows(page)
    if not rows:
        return
    shown = rows[:most]
    print_table(
        ("live ticker", "last trade", "newest bar", "trades/s"),
        [
            (row["ticker"], _age(row["age_seconds"]), _age(row["newest_bar_seconds"]), _rate(row["trades_per_second"]))
            for row in shown
        ],
    )
    if len(rows) > len(shown):
        total = sum(row["trades_per_second"] or 0.0 for row in rows)
        print(f"{len(rows)} live tickers, {total:,.0f} trades/s: the {len(shown)} that were silent longest are shown")


def _print_queries(page: Row) -> None:
    rows = query_rows(page)
    if rows:
        print_table(
            ("query", "records behind", "last step"),
            [(row["query"], f"{row['lag']:,}", _age(row["last_step_seconds_ago"])) for row in rows],
        )


def _print_parts(page: Row) -> None:
    rows = part_rows(page)
    if not rows:
        say("no parts")
        return
    print_table(
        ("part", "state", "memory", "restarts", "pid"),
        [
            (row["part"], _readiness(row), _size(row["memory_bytes"]), str(row["restarts"]), str(row["pid"] or ""))
            for row in rows
        ],
    )


def _print_roles(page: Row) -> None:
    rows = role_rows(page)
    if rows:
        print_table(
            ("role", "holder", "epoch", "standbys"),
            [
                (row["role"], _process(row["holder"]) or "nobody", str(row["epoch"]), standby)
                if at == 0
                else ("", "", "", standby)
                for row in rows
                for at, standby in enumerate([_process(each) for each in row["standbys"]] or ["none"])
            ],
        )


def _process(holder: str) -> str:
    """`host:pid` of a holder, short enough for a line of 80 characters."""
    host, _, pid = holder.rpartition(":")[0].rpartition(":")
    if not host.replace(".", "").isdecimal():
        host = host.partition(".")[0]
    if len(host) > MAX_HOST:
        host = f"{host[: MAX_HOST // 2]}…{host[1 - MAX_HOST // 2 :]}"
    return f"{host}:{pid}" if host else holder


def _print_work(page: Row) -> None:
    for row in work_rows(page):
        for line in _work_lines(row):
            print(line)


def _work_lines(row: Row) -> Iterator[str]:
    if "requests" in row:
        yield f"requests: {row['requests']:,} open; jobs at work: {row['jobs']:,}; pieces queued: {row['queued']:,}"
    if triggers := row.get("triggers"):
        suspended = triggers.get("suspended", 0)
        hint = ": see `candlewright trigger list`" if suspended else ""
        counts = f"{triggers.get('active', 0):,} active, {triggers.get('starting', 0):,} starting"
        yield f"triggers: {counts}, {suspended:,} suspended{hint}"
    for venue in row.get("keep", ()):
        yield _keep_line(venue)
    if "executors" in row:
        yield f"Spark executors: {row['executors']:,}"
    if disk := row.get("disk"):
        yield f"disk: {_size(disk['free_bytes'])} free of {_size(disk['total_bytes'])}"


def _keep_line(venue: Row) -> str:
    line = f"kept fresh of {venue['venue']}: {venue['series']:,} series, {venue['behind']:,} behind"
    if venue["candles_behind"]:
        line += f" by {venue['candles_behind']:,} candles"
    if venue["done_at"]:
        line += f", done at {iso_seconds(venue['done_at'] // 1_000_000_000)}"
    return f"{line}; {venue['error']}" if venue["error"] else line


def _show_again(settings: ClientConfig, output: Output) -> None:
    """The page is fetched before the screen is cleared, so that it does not flicker."""
    page, said = None, ""
    try:
        page = fetch_status(settings)
    except CandlewrightError as error:
        said = str(error)
    if output is Output.table and sys.stdout.isatty():
        sys.stdout.write(_CLEAR)
    if page is None:
        say(said)
    else:
        is_screen = output is Output.table and sys.stdout.isatty()
        show(page, output, shutil.get_terminal_size().lines if is_screen else None)
    sys.stdout.flush()


def _is_well(page: Row) -> bool:
    is_standby = any(part.get("standby") for part in page.get("parts", {}).values())
    return bool(page.get("healthy") and (page.get("ready") or is_standby))


def _statuses(page: Row) -> list[Row]:
    return [part.get("status", {}) for part in page.get("parts", {}).values()]


def _state(part: Row) -> str:
    # An ingestor may serve other venues while it waits for one.
    otherwise = "waiting" if part.get("waits_for") else str(part.get("phase"))
    return next((state for state in ("ready", "standby") if part.get(state)), otherwise)


def _readiness(row: Row) -> str:
    """The state, and of a standby whether a take-over would have to start its queries first."""
    is_cold = row["state"] == "standby" and row["status"].get("role", {}).get("warm") is False
    return f"{row['state']}, not warm" if is_cold else str(row["state"])


def _age(seconds: float | None) -> str:
    if seconds is None:
        return ""
    for unit, length in (("h", 3_600.0), ("min", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit} ago"
    return f"{seconds:.1f} s ago"


def _rate(per_second: float | None) -> str:
    return "" if per_second is None else f"{per_second:,.1f}"


def _size(size: int | None) -> str:
    if size is None:
        return ""
    return f"{size / (1 << 30):.1f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.0f} MiB"
