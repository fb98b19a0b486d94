"""A trigger's text in a document; its first line may name parameters and tickers."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Text:
    """One SQL text, with the parameters and tickers from its first line."""

    sql: str
    parameters: dict[str, str]
    tickers: tuple[str, ...]

    @property
    def period_seconds(self) -> int:
        return int(self.parameters.get("period_seconds", "0"))

    @property
    def input(self) -> str:
        return "ohlc" if self.period_seconds else "ticks"


def read(sql: str) -> Text:
    """`-- parameters: a=1, b=2; tickers: X, Y` as the first line."""
    given = {}
    first = sql.partition("\n")[0]
    if first.startswith("--"):
        for part in first.removeprefix("--").split(";"):
            name, _, value = part.partition(":")
            given[name.strip()] = [item.strip() for item in value.split(",")]
    parameters = dict(item.split("=") for item in given.get("parameters", []))
    return Text(sql, parameters, tuple(given.get("tickers", ())))
