"""JSON forms for the values in a running trigger's state that JSON lacks."""

import json
from decimal import Decimal
from typing import Any

_NAME = "decimal"


def as_json(value: Any) -> dict[str, str]:
    """For `json.dumps(…, default=as_json)`."""
    if isinstance(value, Decimal):
        return {_NAME: str(value)}
    raise TypeError(type(value).__name__)


def unpacked(text: str) -> Any:
    """Decodes a text written with `as_json`; tuples come back as lists."""
    return json.loads(text, object_hook=_read if f'{{"{_NAME}":' in text else None)


def _read(found: dict[str, Any]) -> Any:
    return Decimal(found[_NAME]) if len(found) == 1 and isinstance(found.get(_NAME), str) else found
