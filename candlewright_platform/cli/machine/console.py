"""`candlewright console`: the console of the running platform, in the browser."""

import urllib.request
import webbrowser
from pathlib import Path
from urllib.parse import urlencode

from candlewright.cli.output import say
from candlewright.wire.errors import CandlewrightError
from candlewright.wire.ticker import Ticker
from candlewright_platform.cli.machine.loading import settings_for
from core.settings import Settings

_ANSWER_SECONDS = 5.0
_EVERY_ADDRESS = ("", "0.0.0.0", "*", "[::]")


def address_of(settings: Settings) -> str:
    host, _, port = settings.console.bind.rpartition(":")
    return f"http://{'127.0.0.1' if host in _EVERY_ADDRESS else host}:{port}/"


def open_console(
    ticker: str | None, period: str, *, is_printed: bool, data_dir: Path | None, config: Path | None
) -> None:
    """Raises CandlewrightError if no console answers."""
    settings = settings_for(config, data_dir)
    address = address_of(settings)
    chart = f"chart?{urlencode({'ticker': str(Ticker.parse(ticker)), 'period': period}, safe='/')}" if ticker else ""
    try:
        urllib.request.urlopen(address, timeout=_ANSWER_SECONDS).close()
    except OSError as error:
        hint = "start the platform with `candlewright up`" if settings.console.enabled else "[console] enabled is false"
        raise CandlewrightError(f"no console answers at {address}: {hint}") from error
    print(address + chart, flush=True)
    if not is_printed and not webbrowser.open(address + chart):
        say("no browser could be started here: open the address yourself")
