"""The settings of a client: the platform's addresses, and the client's key.

A settings file is shared with the platform: groups and keys that only the platform knows are ignored here. A name that
is similar to one of the client's is an error.
"""

from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from candlewright.settings import environment
from candlewright.settings.binds import HostPort, ZeroMQBind
from candlewright.settings.group import Group
from candlewright.settings.loading import PREFIX, load
from candlewright.wire.spark_connect import TOKEN, connect_url

#: Similarity of two names, from 0 to 1, at which one counts as a typo of the other.
_ALIKE = 0.8


class SharedGroup(BaseModel):
    """A group that has further keys for the platform."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    @model_validator(mode="before")
    @classmethod
    def _nothing_mistyped(cls, values: Any) -> Any:
        if cls.model_config.get("extra") == "ignore" and isinstance(values, Mapping):
            for name in set(values) - set(cls.model_fields):
                if near := get_close_matches(name, cls.model_fields, n=1, cutoff=_ALIKE):
                    raise ValueError(f"{name}: no such setting; did you mean {near[0]}?")
        return values


class RelayAddresses(SharedGroup):
    #: The relay's socket for requests.
    requests_bind: ZeroMQBind = "tcp://127.0.0.1:5559"
    #: The relay's socket for subscriptions.
    notifications_bind: ZeroMQBind = "tcp://127.0.0.1:5558"


class ClientSettings(Group):
    """How this client is known to the platform."""

    #: File of `candlewright keys new`, if the platform has keys on.
    key: str = ""
    #: Token for the HTTP API, if that is not on loopback.
    token: str = Field("", repr=False)


class SparkAddress(SharedGroup):
    #: Address of Spark Connect.
    connect_bind: HostPort = "127.0.0.1:15002"
    #: The token that Spark Connect requires. Stock PySpark sends it to `localhost`, and over TLS to other hosts.
    connect_token: str = ""
    #: Further settings of Spark.
    conf: Mapping[str, str] = {}

    @property
    def token(self) -> str:
        """`connect_token`, or the setting of Spark that it sets."""
        return self.connect_token or self.conf.get(TOKEN, "")

    @property
    def connect_url(self) -> str:
        """The `sc://` address of the platform's Spark Connect."""
        return connect_url(self.connect_bind, self.token)


class HttpSettings(Group):
    #: Address of the platform's status page and metrics.
    bind: HostPort = "127.0.0.1:8080"


class ConsoleAddress(SharedGroup):
    """Where the HTTP API and the console are served."""

    #: Address of the console; on one other than loopback, every call needs a token.
    bind: HostPort = "127.0.0.1:8090"


class ClientConfig(BaseSettings):
    """The settings that a client reads from `candlewright.toml`."""

    model_config = SettingsConfigDict(
        frozen=True,
        extra="ignore",
        env_prefix=PREFIX,
        env_nested_delimiter=environment.NESTED,
        nested_model_default_partial_update=True,
    )

    #: Folder of the platform's data.
    data_dir: Path = Path("data")
    relay: RelayAddresses = RelayAddresses()
    client: ClientSettings = ClientSettings()
    spark: SparkAddress = SparkAddress()
    http: HttpSettings = HttpSettings()
    console: ConsoleAddress = ConsoleAddress()

    @field_validator("data_dir")
    @classmethod
    def _absolute(cls, value: Path) -> Path:
        return value.absolute()


def load_client_config(file: Path | None = None, overrides: Mapping[str, Any] | None = None) -> ClientConfig:
    """Raises ConfigurationError, as `load` does."""
    return load(ClientConfig, file, overrides)
