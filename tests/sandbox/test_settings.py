from __future__ import annotations

import pytest

from sandbox.settings import SandboxSettings, read_settings


def test_defaults_are_loopback_and_limits_on() -> None:
    assert read_settings([]) == SandboxSettings()
    assert (SandboxSettings().host, SandboxSettings().port, SandboxSettings().rate_limit) == ("127.0.0.1", 9001, True)


def test_command_line_goes_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_SANDBOX__SEED", "7")
    monkeypatch.setenv("CANDLEWRIGHT_SANDBOX__PORT", "9100")
    read = read_settings(["--port", "0", "--symbols", "A/B, C/D", "--no-rate-limit", "--trades", "x", "--trades", "y"])
    assert (read.seed, read.port, read.rate_limit) == (7, 0, False)
    assert (read.symbols, read.trades) == (("A/B", "C/D"), ("x", "y"))


@pytest.mark.parametrize("wrong", [["--port", "70000"], ["--speed", "-1"], ["--nonsense"], ["--seed", "x"]])
def test_wrong_usage_exits_with_two(wrong: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        read_settings(wrong)
    assert ended.value.code == 2
    assert "usage" in capsys.readouterr().err
