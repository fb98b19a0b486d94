"""A worker's answers, without its process."""

from pathlib import Path

import pytest

from console.work import worker
from tests.console.calls import settings_in


@pytest.mark.parametrize(("form", "is_answered"), [("json", False), ("csv", True)])
def test_an_answer_that_is_too_long_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str, *, is_answered: bool
) -> None:
    monkeypatch.setattr(worker, "_MAX_BODY_BYTES", 1 << 20)
    sql = f'SELECT * FROM range(200) AS t("{"a" * 10_000}")'
    asked = {"task": "query", "given": {"sql": sql, "limit": 1_000, "form": form}}
    answer, body = worker._answered(settings_in(tmp_path), asked)
    if is_answered:
        assert 10_000 < len(body) < 12_000
        return
    assert body == b""
    assert (answer["problem"]["status"], answer["problem"]["detail"]) == (
        400,
        "the answer has more than 1 MiB; select less of it",
    )
