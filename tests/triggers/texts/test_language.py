"""The language as one JSON."""

import json

from triggers.texts.check import LIVE_INPUTS, OPTIONS
from triggers.texts.language import COLUMNS, language_json


def test_every_column_and_parameter_has_a_text() -> None:
    found = json.loads(language_json())
    for name, source in LIVE_INPUTS.items():
        assert list(COLUMNS[name]) == source.schema.names
        assert [(each["name"], bool(each["text"])) for each in found["tables"][name]] == [
            (column, True) for column in source.schema.names
        ]
    assert [each["name"] for each in found["parameters"]] == list(OPTIONS)
    assert found["tables"]["ticks"][2]["type"] == "TIMESTAMP_LTZ(9)"
