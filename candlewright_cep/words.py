"""The words of the language, for editors: each comes from the declaration that makes it one."""

from candlewright_cep.binding.pattern_binder import PATTERN_FUNCTIONS
from candlewright_cep.functions.aggregates import AGGREGATES
from candlewright_cep.functions.indicators import INDICATORS
from candlewright_cep.functions.scalar import FUNCTIONS
from candlewright_cep.planning.over import RANKING, VALUES
from candlewright_cep.syntax.reader import KEY_WORDS, RESERVED

__all__ = ["functions", "keywords"]

_OF_PATTERNS = ("ONE", "ALL", "ROW", "PER", "MATCH", "PAST", "SKIP", "TO", "BY", "ASC", "DESC", "NULLS")


def keywords() -> list[str]:
    return sorted({*RESERVED, *KEY_WORDS, *_OF_PATTERNS})


def functions() -> list[str]:
    """Those that are called by name; operators are not."""
    names = {*FUNCTIONS, *AGGREGATES, *INDICATORS, *RANKING, *VALUES, *PATTERN_FUNCTIONS}
    return sorted(name for name in names if name.isidentifier() and name not in RESERVED)
