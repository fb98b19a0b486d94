"""Cards in HTML: a title, facts in a line, a picture or a table, and notes. Colours of text are the page's own."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape

from candlewright.wire.times import format_nanoseconds

_CARD = "font:13px/1.5 system-ui,sans-serif;max-width:660px;margin:4px 0"
_FAINT = "opacity:.72"
_CELL = "text-align:left;white-space:nowrap;padding:2px 12px 2px 0;font-variant-numeric:tabular-nums"
#: Lines of a list, and rows of a table, that are written out.
MOST_LINES, MOST_ROWS = 5, 20


def card(title: str, facts: Iterable[str], body: str = "", *, notes: Iterable[str] = ()) -> str:
    """`body` is HTML; everything else is text."""
    lines = "".join(f"<div>{escape(note)}</div>" for note in notes)
    about = " · ".join(escape(fact) for fact in facts if fact)
    return f'<div style="{_CARD}"><b>{escape(title)}</b> <span style="{_FAINT}">{about}</span>{body}{lines}</div>'


def code(text: str) -> str:
    return f'<pre style="margin:4px 0;white-space:pre-wrap;background:none;color:inherit">{escape(text)}</pre>'


def ranges(name: str, found: Sequence[tuple[int, int]]) -> list[str]:
    """One line per range (ns). If there are many, only the first ones, and the number of the others."""
    lines = [f"{name}: {format_nanoseconds(start)} to {format_nanoseconds(end)}" for start, end in found[:MOST_LINES]]
    return lines + ([f"{len(found) - MOST_LINES} more {name}s"] if len(found) > MOST_LINES else [])


def rows(names: Sequence[str], found: Sequence[Mapping[str, object]]) -> str:
    """A table. If there are many rows, only the last ones, and the number of earlier rows."""
    head = "".join(f'<th scope="col" style="{_CELL}">{escape(name)}</th>' for name in names)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{escape(_text(row.get(name)))}</td>' for name in names) + "</tr>"
        for row in found[-MOST_ROWS:]
    )
    before = f'<div style="{_FAINT}">{len(found) - MOST_ROWS} earlier rows</div>' if len(found) > MOST_ROWS else ""
    return (
        f'{before}<table style="border-collapse:collapse"><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>'
    )


def _text(value: object) -> str:
    if value is None:
        return "NULL"
    return f"{value:.10g}" if isinstance(value, float) else str(value)
