"""Settings that clients read; the platform's own (`core.settings`) add theirs to these."""

from candlewright.settings.client import (
    ClientConfig,
    ClientSettings,
    ConsoleAddress,
    HttpSettings,
    RelayAddresses,
    SparkAddress,
    load_client_config,
)
from candlewright.settings.group import Group
from candlewright.settings.loading import DEFAULT_FILE, PREFIX, load

__all__ = [
    "DEFAULT_FILE",
    "PREFIX",
    "ClientConfig",
    "ClientSettings",
    "ConsoleAddress",
    "Group",
    "HttpSettings",
    "RelayAddresses",
    "SparkAddress",
    "load",
    "load_client_config",
]
