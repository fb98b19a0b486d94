"""What a registered view asks for: its text checked against the real inputs."""

from collections.abc import Mapping
from dataclasses import dataclass

from candlewright_cep import TriggerRejected, compile_stream, compile_view
from candlewright_cep.types import flink_name
from triggers.check import LIVE_INPUTS

__all__ = ["CheckedView", "check_view"]


@dataclass(frozen=True, slots=True)
class CheckedView:
    """A sound view. `columns`: with the Flink SQL names of their types. `reads`: the views that it reads, those that
    they read included."""

    columns: tuple[tuple[str, str], ...]
    reads: tuple[str, ...]
    warnings: tuple[str, ...]


def check_view(name: str, views: Mapping[str, str]) -> CheckedView:
    """`views`: the texts of all that there are, this one included. Raises TriggerRejected."""
    compiled = compile_view(name, {table: source.schema for table, source in LIVE_INPUTS.items()}, views)
    columns = tuple((column, flink_name(kind)) for column, kind in compiled.columns)
    return CheckedView(columns, compiled.views, (*compiled.warnings, *_on_streams(name, views)))


def _on_streams(name: str, views: Mapping[str, str]) -> tuple[str, ...]:
    try:
        compile_stream(f'SELECT * FROM "{name}"', LIVE_INPUTS, views=views, partitions_close=True)
    except TriggerRejected as error:
        return (f"a trigger that selects from it as it is would be refused: {error.message}",)
    return ()
