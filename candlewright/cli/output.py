"""Rows on stdout: a table for people, CSV, JSON lines or Parquet for programs. Everything else goes to stderr."""

import itertools
import json
import os
import shutil
import sys
import textwrap
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from candlewright.cli.chart import Style
from candlewright.wire.errors import CandlewrightError

if TYPE_CHECKING:
    import pyarrow as pa

#: Rows that a table shows at its start and end; files and JSON hold all.
SHOWN_ROWS = 10
UNLIMITED_COLUMNS = 10_000
#: A terminal shows this many rows of a list; a pipe gets all.
LISTED_ROWS = 1_000
#: A text column is not narrower than this, unless it has a word longer than the second figure.
NARROW_COLUMNS, LONG_WORD = 20, 48
#: Control characters, which a terminal acts on, except tab and newline; texts come from untrusted sources.
_OBEYED = {*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A)} - {0x09, 0x0A}
_SHOWN = {code: f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" for code in _OBEYED}


class Output(StrEnum):
    table = "table"
    json = "json"


class FileOutput(StrEnum):
    table = "table"
    csv = "csv"
    json = "json"
    parquet = "parquet"


def say(line: str) -> None:
    print(wrapped(visible(line), sys.stderr), file=sys.stderr, flush=True)


def visible(text: str) -> str:
    """The text with control characters escaped, so that a terminal shows them instead of acting on them."""
    return text if text.isprintable() else text.translate(_SHOWN)


def wrapped(text: str, stream: TextIO) -> str:
    """Wrapped at the terminal's width without breaking words; unchanged if `stream` is not a terminal."""
    if not stream.isatty():
        return text
    width = shutil.get_terminal_size().columns
    lines = text.split("\n")
    return "\n".join(_folded(line, width) if len(line) > width else line for line in lines)


def _folded(line: str, width: int) -> str:
    # A word that is longer than a line (a path, say) is left to the terminal, so that it can be copied.
    return textwrap.fill(line, width, subsequent_indent="  ", break_long_words=False, break_on_hyphens=False)


def json_line(row: Mapping[str, Any]) -> str:
    """One JSON object: times as ISO text, bytes as hex, NULL as null, and values that are not JSON numbers as text."""
    return json.dumps(row, default=_plain, ensure_ascii=False, separators=(",", ":"))


def print_rows(rows: Sequence[Mapping[str, Any]], output: Output, *, columns: Sequence[str], empty: str) -> None:
    """Rows as JSON lines, or as a table of `columns`."""
    if output is Output.json:
        for row in rows:
            print(json_line(row))
    elif rows:
        print_table(columns, ([cell(row.get(column)) for column in columns] for row in rows))
    else:
        say(empty)


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str]], title: str | None = None) -> None:
    is_tty = sys.stdout.isatty()
    cells = [list(row) for row in rows]
    if is_tty and len(cells) > LISTED_ROWS:
        say(f"{len(cells)} rows, of which the first and the last are shown: a pipe or --output json shows all")
        cells = [*cells[: LISTED_ROWS // 2], ["…"] * len(columns), *cells[-LISTED_ROWS // 2 :]]
    if not is_tty and title is None and all(map(_is_plain, itertools.chain(columns, *cells))):
        _print_plain(columns, cells)
        return
    from rich import box
    from rich.console import Console
    from rich.table import Table

    # A pipe has no edge: nothing is cut there.
    console = Console(markup=False, highlight=False, width=None if is_tty else UNLIMITED_COLUMNS)
    shown, left_out = fitting(columns, cells, console.width)
    if left_out and is_tty and len(cells) == 1:
        _print_record(columns, cells[0], title)
        return
    frame, padding = (box.SIMPLE_HEAD, (0, 1, 0, 0)) if is_tty else (box.ASCII2, (0, 1))
    table = Table(title=title, box=frame, title_justify="left", padding=padding)
    for column, may_wrap in shown:
        table.add_column(column, no_wrap=not may_wrap, overflow="fold")
    for row in cells:
        table.add_row(*row[: len(shown)])
    console.print(table)
    if left_out:
        say(f"not enough room for {', '.join(left_out)}: a wider terminal or --output json shows all")


def _print_record(columns: Sequence[str], row: Sequence[str], title: str | None) -> None:
    """A row that does not fit, with one field per line."""
    if title is not None:
        print(title)
    width = max(map(len, columns))
    for column, value in zip(columns, row, strict=True):
        print(wrapped(f"{column:<{width}}  {value}".rstrip(), sys.stdout))


def _is_plain(text: str) -> bool:
    """Whether each character takes one cell, and all are in one line."""
    return text.isascii() and text.isprintable()


def _print_plain(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Same output as rich, in a hundredth of the time."""
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    edge = "+" + "+".join("-" * (width + 2) for width in widths) + "+\n"
    lines = ("".join(f"| {text:<{width}} " for text, width in zip(row, widths, strict=True)) for row in rows)
    head = "".join(f"| {text:<{width}} " for text, width in zip(columns, widths, strict=True))
    sys.stdout.write(f"{edge}{head}|\n{edge}")
    sys.stdout.writelines(f"{line}|\n" for line in lines)
    sys.stdout.write(edge)


def fitting(
    columns: Sequence[str], rows: Sequence[Sequence[str]], width: int
) -> tuple[list[tuple[str, bool]], list[str]]:
    """The columns that fit `width`, each with whether it may wrap; and the columns that are left out.

    A number or name broken into two lines would be misread, so only texts of several words wrap.
    """
    shown: list[tuple[str, bool]] = []
    # The left edge.
    taken = 1
    for number, column in enumerate(columns):
        words = [column, *(word for row in rows for word in row[number].split())]
        whole = max(map(len, [column, *(row[number] for row in rows)]))
        least = min(whole, max(NARROW_COLUMNS, min(LONG_WORD, max(map(len, words)))))
        if number == len(columns) - 1 and any(" " in row[number] for row in rows):
            # The last column is left out only if its sentences do not fit at all; a long word is folded.
            least = min(least, max(NARROW_COLUMNS, width - taken - 2))
        # One cell for the space after the column, one for the line between two columns.
        taken += least + 2
        if shown and taken > width:
            return shown, list(columns[number:])
        shown.append((column, least < whole))
    return shown, []


def yes_or_no(is_so: bool) -> str:
    return "yes" if is_so else "no"


def cell(value: object) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.10g}"
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, list | tuple):
        return ", ".join(map(cell, value))
    return visible(str(value))


def iso(moment: datetime) -> str:
    text = moment.astimezone(UTC).replace(tzinfo=None).isoformat() if moment.tzinfo else moment.isoformat()
    return text + ("Z" if moment.tzinfo else "")


def print_arrow(table: "pa.Table", output: FileOutput, file: Path | None) -> None:
    """A whole Arrow table; raises CandlewrightError when `file` cannot be written."""
    if output is FileOutput.table:
        if file is not None:
            raise CandlewrightError("a table is for the terminal: give --output csv, json or parquet with --file")
        print_arrow_table(table)
        return
    try:
        if file is not None:
            with file.open("wb") as sink:
                _write(table, output, sink)
            say(f"{table.num_rows} row{'s' if table.num_rows != 1 else ''} in {file}")
        else:
            sys.stdout.flush()
            _write(table, output, sys.stdout.buffer)
            sys.stdout.buffer.flush()
    except BrokenPipeError:
        # The reader of the pipe (such as head) has closed it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        raise CandlewrightError(f"{file or 'stdout'} cannot be written: {error.strerror}") from error


def print_arrow_table(table: "pa.Table") -> None:
    """The first and the last rows."""
    names = table.column_names
    if table.num_rows > 2 * SHOWN_ROWS:
        parts = [table.slice(0, SHOWN_ROWS), table.slice(table.num_rows - SHOWN_ROWS)]
        rows = [[cell(row[name]) for name in names] for row in parts[0].to_pylist()]
        rows.append(["…"] * len(names))
        rows += [[cell(row[name]) for name in names] for row in parts[1].to_pylist()]
    else:
        rows = [[cell(row[name]) for name in names] for row in table.to_pylist()]
    print_table(names, rows)
    print(f"{table.num_rows} row{'s' if table.num_rows != 1 else ''}")


def _write(table: "pa.Table", output: FileOutput, sink: Any) -> None:
    if output is FileOutput.csv:
        import pyarrow.csv

        pyarrow.csv.write_csv(table, sink)
    elif output is FileOutput.parquet:
        import pyarrow.parquet

        pyarrow.parquet.write_table(table, sink)
    else:
        import pyarrow.types

        names = [field.name for field in table.schema if pyarrow.types.is_map(field.type)]
        for batch in table.to_batches(max_chunksize=10_000):
            rows = batch.to_pylist()
            for row in rows:
                row.update({name: dict(row[name]) for name in names if row[name] is not None})
            sink.write("".join(json_line(row) + "\n" for row in rows).encode())


def style_of_stdout() -> Style:
    """Colour on a terminal that supports it; Unicode if the encoding has it."""
    encoding = (sys.stdout.encoding or "ascii").lower().replace("-", "")
    has_colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return Style(colour=has_colour, unicode=encoding.startswith("utf"))


def _plain(value: object) -> object:
    if isinstance(value, datetime):
        return iso(value)
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, Decimal | timedelta):
        return str(value)
    if isinstance(value, bytes):
        return value.hex()
    raise TypeError(f"no JSON for {type(value).__name__}")
