"""Pages generated from the code are complete: each function, column, error and code has its entry."""

import ast
import re
from collections.abc import Iterator

import pytest

from documentation import commands, errors, functions, messages, metrics, settings, tables
from documentation.__main__ import pages
from documentation.source import modules


@pytest.fixture(scope="module")
def made() -> dict[str, str]:
    return {str(path): text for path, text in pages().items()}


def test_every_function_has_an_example() -> None:
    assert functions.missing() == []


def test_examples_show_the_results_of_the_engine(made: dict[str, str]) -> None:
    page = made["reference/functions.md"]
    assert "| `ROUND` | `ROUND(3.14159, 2)` | `3.14` |" in page
    assert "| `LAG` | `LAG(price) OVER (PARTITION BY ticker ORDER BY ts)` | `[NULL, 100, 99, 97.5, 99]` |" in page


def test_every_candle_pattern_has_a_line(made: dict[str, str]) -> None:
    page = made["reference/candle-patterns.md"]
    assert page.count("| `CDL_") == 61
    assert "| `three_black_crows` | after a rise three falls" in page
    assert "| 80, 100 |" not in page and "| -100, -80, 80, 100 | `CDL_ENGULFING` | `CDLENGULFING` |" in page


def test_every_column_has_a_meaning() -> None:
    columns = {column.name for each in tables.definitions() for column in each.schema.fields}
    assert len(tables.definitions()) >= 6
    assert columns - set(tables.MEANINGS) == set()


def test_every_error_has_advice() -> None:
    classes = [*errors.classes(errors.client), *errors.classes(errors.wire)]
    assert all(errors.action(each) for each in classes)
    assert {"GapError", "BusFull", "RateLimited"} <= set(errors.ACTIONS)


def test_every_failure_code_is_explained() -> None:
    assert set(errors.FAILURES) == set(errors.FailureCode)


def test_every_wire_code_is_explained() -> None:
    found = set(codes())
    assert len(found) >= 10
    assert found - set(errors.WIRE) == set()


def codes() -> Iterator[str]:
    """Codes that servers pass to an Error or a BadFrame as a literal."""
    for path, tree in modules(containing=r"\b(Error|BadFrame)\("):
        if path.parts[0] not in ("broker", "relay", "candlewright"):
            continue
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", "")) in (
                "Error",
                "BadFrame",
            ):
                values = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "code")]
                for value in values:
                    if isinstance(value, ast.Constant) and re.fullmatch(r"[A-Z][A-Z_]+", str(value.value)):
                        yield str(value.value)


def test_every_command_has_a_help_text(made: dict[str, str]) -> None:
    found = dict(commands.commands())
    assert {"candlewright history", "candlewright up", "candlewright trigger add"} <= set(found)
    assert [name for name, command in found.items() if not command.help] == []
    assert all(f"## `{name}`" in made["reference/commands.md"] for name in found)


def test_every_metric_has_a_text() -> None:
    found = list(metrics.metrics())
    assert len(found) > 100
    assert [metric.name for metric in found if not metric.text.strip()] == []


def test_every_group_of_settings_is_a_section(made: dict[str, str]) -> None:
    names = [name for name, _ in settings.groups(settings.Settings)]
    assert {"broker", "relay", "bus", "gateways.kafka_pixy"} <= set(names)
    assert "`lease_seconds` | number | `15`" in made["reference/settings.md"]
    assert "## `[gateways.kapacitor.udf.NAME]`" in made["reference/settings.md"]


def test_every_message_of_a_frame_has_its_fields(made: dict[str, str]) -> None:
    page = made["reference/messages.md"]
    missing = [
        row.message.DESCRIPTOR.full_name
        for row in messages.FRAMES
        for field in row.message.DESCRIPTOR.fields
        if f"| {field.number} | `{field.name}` |" not in section(page, row.message.DESCRIPTOR.name)
    ]
    assert missing == []


def section(page: str, name: str) -> str:
    return page.partition(f"### {name}\n")[2].partition("\n### ")[0]


def test_every_setting_has_a_meaning() -> None:
    rows = [line for line in settings.markdown().splitlines() if line.startswith("| `")]
    assert len(rows) > 100
    assert [line for line in rows if not line.rstrip(" |").endswith(".")] == []
