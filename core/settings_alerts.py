"""Settings of the alerts: where events are delivered, and which ones."""

import base64
import binascii
from collections.abc import Mapping
from datetime import time
from fnmatch import fnmatchcase
from typing import Any, Literal, get_args
from urllib.parse import urlsplit
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, SecretStr, field_validator, model_validator

from candlewright.settings import Group

Kind = Literal["event", "gap", "stale", "no_bars", "trigger_suspended", "part_down", "request_failed", "disk_low"]
KINDS: tuple[str, ...] = get_args(Kind)
#: Prefix of a secret as the Standard Webhooks specification writes it.
SECRET_PREFIX = "whsec_"


def _listed(value: object) -> object:
    return (value,) if isinstance(value, str) else value


class DestinationSettings(Group):
    """`url`: an `https://` address for a webhook, or an Apprise URL; `secret`: signs webhooks, several during a
    rotation; `allow_private`: whether loopback and private addresses, and `http://`, are allowed; `cooldown_seconds`:
    after an alert of a trigger and ticker, further ones are suppressed for this long; `quiet`: the hours without
    alerts, as `22:00-07:00`, in `time_zone`.
    """

    url: SecretStr = Field(min_length=1)
    secret: tuple[SecretStr, ...] = ()
    format: Literal["text", "markdown", "html"] = "text"
    rate_per_minute: float = Field(0.0, ge=0)
    allow_private: bool = False
    cooldown_seconds: float = Field(0.0, ge=0)
    quiet: str = ""
    time_zone: str = "UTC"

    @field_validator("secret", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return _listed(value) if value else ()

    @field_validator("secret")
    @classmethod
    def _base64(cls, value: tuple[SecretStr, ...]) -> tuple[SecretStr, ...]:
        for secret in value:
            text = secret.get_secret_value().removeprefix(SECRET_PREFIX)
            try:
                key = base64.b64decode(text + "=" * (-len(text) % 4), validate=True)
            except binascii.Error:
                key = b""
            if not key:
                raise ValueError(f"must be base64, with or without the prefix {SECRET_PREFIX}")
        return value

    @field_validator("quiet")
    @classmethod
    def _hours(cls, value: str) -> str:
        if value:
            hours_of(value)
        return value

    @field_validator("time_zone")
    @classmethod
    def _known_zone(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError, OSError) as error:
            raise ValueError("not a known time zone, such as Europe/Berlin") from error
        return value

    @model_validator(mode="after")
    def _is_allowed(self) -> "DestinationSettings":
        if self.scheme == "http" and not self.allow_private:
            raise ValueError("an http:// address needs allow_private = true; use https:// elsewhere")
        return self

    @property
    def scheme(self) -> str:
        """The only part of the address that may be shown, because it contains keys of services."""
        return urlsplit(self.url.get_secret_value()).scheme

    @property
    def is_webhook(self) -> bool:
        return self.scheme in ("http", "https")


class RouteSettings(Group):
    """Which alerts go `to` these destinations. Names and tickers may contain `*`; an omitted condition matches
    everything."""

    triggers: tuple[str, ...] = ()
    tickers: tuple[str, ...] = ()
    kind: tuple[Kind, ...] = ()
    to: tuple[str, ...] = Field(min_length=1)

    @field_validator("triggers", "tickers", "kind", "to", mode="before")
    @classmethod
    def _one_or_many(cls, value: object) -> object:
        return _listed(value)

    def matches(self, kind: str, trigger_id: str, ticker: str) -> bool:
        return (
            (not self.kind or kind in self.kind)
            and (not self.triggers or any(fnmatchcase(trigger_id, each) for each in self.triggers))
            and (not self.tickers or any(fnmatchcase(ticker, each) for each in self.tickers))
        )


class AlertsSettings(BaseModel):
    """`[alerts.NAME]` is a destination."""

    model_config = ConfigDict(frozen=True, extra="allow")
    __pydantic_extra__: dict[str, DestinationSettings] = Field(init=False)

    #: Which alerts go to which destinations. Without a route, every destination gets every trigger event.
    route: tuple[RouteSettings, ...] = ()
    #: An address that is called while all parts are healthy.
    heartbeat: SecretStr = SecretStr("")
    #: Pause between two such calls.
    heartbeat_seconds: float = Field(60.0, gt=0)

    @model_validator(mode="before")
    @classmethod
    def _names_in_lower_case(cls, value: Any) -> Any:
        # Names from the environment come in any case.
        return {name.lower(): group for name, group in value.items()} if isinstance(value, dict) else value

    @field_validator("route", mode="after")
    @classmethod
    def _lower_case(cls, value: tuple[RouteSettings, ...]) -> tuple[RouteSettings, ...]:
        return tuple(route.model_copy(update={"to": tuple(name.lower() for name in route.to)}) for route in value)

    @model_validator(mode="after")
    def _known_destinations(self) -> "AlertsSettings":
        unknown = sorted({name for route in self.route for name in route.to} - set(self.destinations))
        if unknown:
            known = ", ".join(sorted(self.destinations)) or "none"
            raise ValueError(f"route.to names {', '.join(unknown)}; the destinations are: {known}")
        return self

    @field_validator("heartbeat")
    @classmethod
    def _is_web_address(cls, value: SecretStr) -> SecretStr:
        if value and urlsplit(value.get_secret_value()).scheme not in ("http", "https"):
            raise ValueError("must be an http:// or https:// address")
        return value

    @property
    def has_work(self) -> bool:
        return bool(self.destinations or self.heartbeat)

    @property
    def destinations(self) -> Mapping[str, DestinationSettings]:
        return self.__pydantic_extra__ or {}


def hours_of(text: str) -> tuple[time, time]:
    """`22:00-07:00` as its two times. Raises ValueError."""
    start, dash, end = text.partition("-")
    try:
        found = time.fromisoformat(start.strip()), time.fromisoformat(end.strip())
    except ValueError as error:
        raise ValueError("must be two times of day, such as 22:00-07:00") from error
    if not dash or found[0] == found[1]:
        raise ValueError("must be two different times of day, such as 22:00-07:00")
    return found
