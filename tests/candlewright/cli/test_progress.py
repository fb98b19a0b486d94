import pytest

from candlewright.cli import progress
from candlewright.cli.progress import RequestProgress


class Clock:
    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(progress, "time", clock)
    return clock


def test_a_quick_request_shows_nothing(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with RequestProgress("A/B.X", is_tty=False) as show:
        show(5, 10)
        clock.now = 0.9
        show(10, 10)
    assert capsys.readouterr() == ("", "")


def test_without_a_terminal_there_is_a_plain_line_now_and_then(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with RequestProgress("A/B.X", is_tty=False) as show:
        for second in range(1, 12):
            clock.now = second
            show(second, 20)
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines() == [f"A/B.X: {done} of 20 candles" for done in (1, 6, 11)]


def test_a_wait_for_the_first_candle_shows_a_hint_once(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with RequestProgress("A/B.X", is_tty=False, hint="look at this") as show:
        for second in (1, 4, 5, 6):
            clock.now = second
            show(0, 20)
    assert capsys.readouterr().err.splitlines().count("look at this") == 1
    clock.now = 0
    with RequestProgress("A/B.X", is_tty=False, hint="look at this") as show:
        for second in (1, 9):
            clock.now = second
            show(second, 20)
    assert "look" not in capsys.readouterr().err


def test_a_terminal_gets_a_bar_on_stderr(clock: Clock, capsys: pytest.CaptureFixture[str]) -> None:
    with RequestProgress("A/B.X", is_tty=True) as show:
        clock.now = 2
        show(5, 10)
    assert capsys.readouterr().out == ""


def test_a_note_is_shown_at_once_and_again_only_when_it_changes(
    clock: Clock, capsys: pytest.CaptureFixture[str]
) -> None:
    with RequestProgress("A/B.X", is_tty=False) as show:
        for note in ("", "waiting for a slot", "waiting for a slot", "", "waiting for a slot"):
            show(0, 20, note=note)
    assert capsys.readouterr().err.splitlines() == ["A/B.X: waiting for a slot"] * 2
