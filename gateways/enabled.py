"""The gateways that the settings enable."""

from bus.api import Bus
from candlewright.wire.errors import ConfigurationError
from core.settings import Settings
from gateways.gateway import Gateway
from gateways.kafka_pixy.server import KafkaPixy
from gateways.numaflow.server import NumaflowSource
from gateways.numaflow_sources.server import NumaflowSources
from gateways.rocketmq.server import RocketMQGateway


def enabled_gateways(settings: Settings, bus: Bus) -> list[Gateway]:
    """Raises ConfigurationError if no gateway is enabled, or if one has unusable settings."""
    found: list[Gateway] = []
    max_ahead_ns = settings.ticks.max_ahead_ns
    if settings.gateways.kafka_pixy.enabled:
        found.append(KafkaPixy(settings.gateways.kafka_pixy, bus, max_ahead_ns))
    if settings.gateways.numaflow.enabled:
        found.append(NumaflowSource(settings.gateways.numaflow, bus))
    if settings.gateways.rocketmq.enabled:
        keys = settings.data_dir / "keys"
        partitions = settings.bus.partitions
        found.append(
            RocketMQGateway(
                settings.gateways.rocketmq, bus, keys=keys, partitions=partitions, max_ahead_ns=max_ahead_ns
            )
        )
    if settings.ingestor.numaflow:
        found.append(NumaflowSources(settings.ingestor.numaflow, bus, max_ahead_ns))
    if not found:
        raise ConfigurationError("no gateway is enabled: set gateways.kafka_pixy.enabled, .rocketmq or .numaflow")
    return found
