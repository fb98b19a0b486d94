"""Which gateways the settings ask for."""

from bus.api import Bus
from core.errors import ConfigurationError
from core.settings import Settings
from gateways.gateway import Gateway


def enabled_gateways(settings: Settings, bus: Bus) -> list[Gateway]:
    """Raises ConfigurationError when none is enabled, or one's settings cannot be used."""
    found: list[Gateway] = []
    if not found:
        raise ConfigurationError("no gateway is enabled: set gateways.kafka_pixy.enabled, .rocketmq or .numaflow")
    return found
