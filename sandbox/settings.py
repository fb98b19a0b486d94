"""Settings of `python -m sandbox`: command line over environment (CANDLEWRIGHT_SANDBOX__SEED=7) over defaults."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class SandboxSettings(BaseSettings):
    """The options of one sandbox process."""

    model_config = SettingsConfigDict(env_prefix="CANDLEWRIGHT_SANDBOX__", frozen=True, extra="forbid")

    host: str = "127.0.0.1"
    port: int = Field(default=9001, ge=0, le=65535)
    seed: int = 1
    symbols: tuple[str, ...] = ()
    clock: str | None = None
    speed: float = Field(default=1.0, ge=0)
    rate_limit: bool = True
    candles: tuple[str, ...] = ()
    trades: tuple[str, ...] = ()


def read_settings(arguments: Sequence[str] | None = None) -> SandboxSettings:
    """Parse the command line; exits with code 2 and a message if it is invalid."""
    parser = argparse.ArgumentParser(prog="sandbox", description="An exchange on loopback with generated market data.")
    parser.add_argument("--host")
    parser.add_argument("--port", type=int)
    parser.add_argument("--seed", type=int)
    parser.add_argument("--symbols", type=_names, help="more pairs, for example FOO/USDT,BAR/BTC")
    parser.add_argument("--clock", metavar="ISO", help="the exchange's time at the start (default: the real time)")
    parser.add_argument("--speed", type=float, help="speed of the exchange's time as a multiple of real time")
    parser.add_argument("--no-rate-limit", dest="rate_limit", action="store_false", default=None)
    parser.add_argument("--candles", action="append", metavar="PAIR:INTERVAL=FILE", help="recorded candles to serve")
    parser.add_argument("--trades", action="append", metavar="FILE", help="recorded trade frames to replay")
    given = {name: value for name, value in vars(parser.parse_args(arguments)).items() if value is not None}
    try:
        return SandboxSettings(**given)
    except ValueError as error:
        parser.error(str(error))


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())
