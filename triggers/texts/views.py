"""Checks a registered view's text against the real inputs."""

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from itertools import pairwise

from candlewright_cep import TriggerRejected, compile_stream, compile_view
from candlewright_cep.limits import Limits
from candlewright_cep.planning.candle_views import CANDLE_VIEWS, candle_view
from candlewright_cep.syntax.tokens import TokenKind, tokenize
from candlewright_cep.types import flink_name
from triggers.texts.check import LIVE_INPUTS

__all__ = ["BUILT_IN_VIEWS", "CheckedView", "built_in_view", "check_view", "may_read_views"]

#: By name, what each view contains that exists without being registered.
BUILT_IN_VIEWS = CANDLE_VIEWS

_BEFORE_TABLES = ("FROM", "JOIN", "TABLE", ",")


@dataclass(frozen=True, slots=True)
class CheckedView:
    """A valid view. `columns`: with the Flink SQL names of their types. `reads`: the views that it reads, directly or
    through other views.
    """

    columns: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    warnings: tuple[str, ...]


def check_view(name: str, views: Mapping[str, str]) -> CheckedView:
    """`views`: the texts of all views, including this one. Raises TriggerRejected."""
    compiled = compile_view(name, {table: source.schema for table, source in LIVE_INPUTS.items()}, views)
    columns = tuple((column, flink_name(kind)) for column, kind in compiled.columns)
    return CheckedView(columns, compiled.views, (*compiled.warnings, *_on_streams(name, views)))


@cache
def built_in_view(name: str) -> tuple[str, CheckedView]:
    """The text of one of BUILT_IN_VIEWS, and the checked view."""
    text = candle_view(name)
    return text, check_view(name, {name: text})


def may_read_views(sql: str) -> bool:
    """Whether the text uses, where a table may be, a name other than an input's; False for a text that cannot be
    parsed.
    """
    try:
        tokens = tokenize(sql, Limits())
    except TriggerRejected:
        return False
    return any(
        before.text.upper() in _BEFORE_TABLES
        and token.kind in (TokenKind.NAME, TokenKind.QUOTED)
        and token.text.lower() not in LIVE_INPUTS
        for before, token in pairwise(tokens)
    )


def _on_streams(name: str, views: Mapping[str, str]) -> tuple[str, ...]:
    try:
        compile_stream(f'SELECT * FROM "{name}"', LIVE_INPUTS, views=views, partitions_close=True)
    except TriggerRejected as error:
        return (f"a trigger that selects from it without changes would be rejected: {error.message}",)
    return ()
