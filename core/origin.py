"""Where candles come from: real exchanges, or the sandbox, which invents them. The two are never stored together."""

from enum import StrEnum

from candlewright.wire.errors import ConfigurationError


class Origin(StrEnum):
    EXCHANGES = "exchanges"
    SANDBOX = "sandbox"

    @property
    def _candles(self) -> str:
        return "candles of real exchanges" if self is Origin.EXCHANGES else "candles that the sandbox invented"

    @property
    def _start(self) -> str:
        return "a start with real exchanges" if self is Origin.EXCHANGES else "a start with the sandbox"


def check_same(place: str, known: str, ours: Origin, *, way_out: str) -> None:
    """Raises ConfigurationError, one sentence, unless `known` (the origin of what is in `place`) is `ours`."""
    try:
        theirs = Origin(known)
    except ValueError:
        raise ConfigurationError(f"{place} has an unknown origin {known!r}: {way_out}") from None
    if theirs is not ours:
        raise ConfigurationError(f"{place} holds {theirs._candles}, so {ours._start} is refused: {way_out}")
