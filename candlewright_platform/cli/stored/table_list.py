"""`candlewright tables`: what is stored, and how DuckDB and Polars read it."""

import json
import re
import shlex
from pathlib import Path
from urllib.parse import urlsplit

from candlewright.cli.output import Output, print_rows, say
from candlewright.wire.errors import CandlewrightError
from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.stored.near_tables import check_tables
from core.settings import Settings

_COLUMNS = ("table", "rows", "files", "bytes")
_TOTALS = ("total-records", "total-data-files", "total-files-size")
#: Parts of the names of properties that are not printed.
_SECRET = re.compile("key|secret|token|credential|password", re.IGNORECASE)


def run(table: str, output: Output, *, data_dir: Path | None, config: Path | None) -> None:
    from iceberg.catalog import open_catalog
    from iceberg.tables import TABLES

    settings = settings_for(config, data_dir)
    check_tables(settings)
    names = [".".join(definition.identifier) for definition in TABLES]
    chosen = next((name for name in names if table in (name, name.partition(".")[2])), None)
    if chosen is None:
        raise CandlewrightError(f"unknown table {table} (expected one of {', '.join(names)})")
    catalog = open_catalog(settings)
    found = []
    for name in names:
        snapshot = catalog.load_table(name).current_snapshot()
        summary = snapshot.summary if snapshot is not None else None
        totals = [int((summary[each] if summary else None) or 0) for each in _TOTALS]
        row = dict(zip(_COLUMNS, (name, *totals), strict=True))
        found.append(row | readers(settings, name) if output is Output.json else row)
    print_rows(found, output, columns=_COLUMNS, empty="")
    if output is Output.table:
        print("", *readers(settings, chosen).values(), sep="\n")
    if hidden := [_variable(name) for name, value in _properties(settings).items() if _is_secret(name, value)]:
        say(f"the commands leave out the catalog's secrets: set {', '.join(hidden)}")


def readers(settings: Settings, table: str) -> dict[str, str]:
    """Commands that print the first rows of a table by DuckDB and by Polars."""
    given = {name: value for name, value in _properties(settings).items() if not _is_secret(name, value)}
    loaded = f'load_catalog("lake", **{json.dumps(given)}).load_table("{table}")'
    codes = {
        "duckdb": f'print({loaded}.scan(limit=10).to_duckdb("rows").sql("FROM rows"))',
        "polars": f"import polars; print(polars.scan_iceberg({loaded}).head(10).collect())",
    }
    start = "from pyiceberg.catalog import load_catalog; "
    return {program: f"python -c {shlex.quote(start + code)}" for program, code in codes.items()}


def _properties(settings: Settings) -> dict[str, str]:
    from iceberg.catalog import catalog_properties

    found = catalog_properties(settings)
    if found["type"] == "sql":
        # Each table states where its files are; only a REST catalog needs its warehouse.
        del found["warehouse"]
    return found


def _is_secret(name: str, value: str) -> bool:
    return bool(_SECRET.search(name)) or urlsplit(value).password is not None


def _variable(name: str) -> str:
    """The environment variable in which pyiceberg looks for a property of the catalog `lake`."""
    return f"PYICEBERG_CATALOG__LAKE__{name.upper().replace('.', '__').replace('-', '_')}"
