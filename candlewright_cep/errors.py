"""Errors in a text, or in the rows that it processes."""

import copyreg
from typing import Any


class TriggerRejected(Exception):
    """A rejected text, with the position of the error (1-based) and a hint, which may be empty."""

    def __init__(self, message: str, line: int = 1, column: int = 1, *, hint: str = "") -> None:
        self.message = message
        self.line = line
        self.column = column
        self.hint = hint
        super().__init__(f"INVALID_SQL {line}:{column}: {message}" + (f" ({hint})" if hint else ""))

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the fields: `__init__` would prepend the position to the text a second time."""
        return copyreg.__newobj__, (type(self), *self.args), vars(self)  # type: ignore[attr-defined]
