"""Metrics: every counter, gauge and histogram that the platform declares."""

import ast
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from documentation.markdown import code, page, table
from documentation.source import modules

KINDS = ("Counter", "Gauge", "Histogram")
INTRODUCTION = """
`http.bind` (127.0.0.1:8080) serves the metrics of all parts at `/metrics`, with a `part` label. Names are
`candlewright_<part>_<thing>_<unit or total>`. [Monitoring](../operations.md#monitoring) says which of them to alert on.
"""


@dataclass(frozen=True, slots=True)
class Metric:
    name: str
    kind: str
    text: str
    labels: tuple[str, ...]

    @property
    def part(self) -> str:
        return self.name.split("_")[1]


def metrics() -> Iterator[Metric]:
    for _, tree in modules(containing='"candlewright_'):
        names = constants(tree)
        for node in ast.walk(tree):
            if isinstance(node, ast.Call):
                kind = getattr(node.func, "attr", getattr(node.func, "id", ""))
                arguments = [value(argument, names) for argument in node.args]
                if kind in KINDS and len(arguments) >= 2 and str(arguments[0]).startswith("candlewright_"):
                    labels = arguments[2] if len(arguments) > 2 else None
                    yield Metric(str(arguments[0]), kind.lower(), str(arguments[1] or ""), tuple(labels or ()))
            elif isinstance(node, ast.Dict):
                yield from _noted(value(node, names))


def _noted(table: Any) -> Iterator[Metric]:
    """Of a table from names of counters to their texts."""
    for name, text in (table or {}).items():
        if str(name).startswith("candlewright_") and isinstance(text, str):
            yield Metric(name, "counter", text, ())


def constants(tree: ast.Module) -> dict[str, str]:
    """The texts that a module's names stand for."""
    return {
        node.targets[0].id: node.value.value
        for node in tree.body
        if isinstance(node, ast.Assign)
        and isinstance(node.targets[0], ast.Name)
        and isinstance(node.value, ast.Constant)
        and isinstance(node.value.value, str)
    }


def value(node: ast.expr, names: dict[str, str]) -> Any:
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
        return "".join(
            names.get(part.id, "") if isinstance(part, ast.Name) else str(value(part, names)) for part in parts
        )
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def markdown() -> str:
    found = sorted(set(metrics()), key=lambda metric: metric.name)
    blocks = [INTRODUCTION]
    for part in sorted({metric.part for metric in found}):
        rows = [
            (code(metric.name), metric.kind, ", ".join(map(code, metric.labels)), metric.text)
            for metric in found
            if metric.part == part
        ]
        blocks += [f"## {part}", table(("metric", "kind", "labels", "counts"), rows)]
    return page("Metrics", *blocks)
