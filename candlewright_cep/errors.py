"""What is wrong with a text, or with the rows that it meets."""

import copyreg
from typing import Any


class TriggerRejected(Exception):
    """A text that is refused, with the place in it (1-based) and, where there is one, a hint."""

    def __init__(self, message: str, line: int = 1, column: int = 1, *, hint: str = "") -> None:
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(f"INVALID_SQL {line}:{column}: {message}" + (f" ({hint})" if hint else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        """From what an error holds: `__init__` would put the place in front of the text again."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]
