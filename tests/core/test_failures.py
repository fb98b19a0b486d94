import pytest

from core.failures import Failure, FailureCode


@pytest.mark.parametrize("code", list(FailureCode))
def test_a_failure_reads_back_from_its_text(code: FailureCode) -> None:
    failure = Failure(code, "why: because")
    assert Failure.parse(str(failure)) == failure


@pytest.mark.parametrize("text", ["", "boom", "boom: it broke", "unavailable: no"])
def test_the_words_of_a_foreign_ingestor_are_unknown_and_kept(text: str) -> None:
    assert Failure.parse(text) == Failure(FailureCode.UNKNOWN, text)
    assert not FailureCode.UNKNOWN.is_final
