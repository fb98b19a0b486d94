"""Which gateways the settings ask for."""

from bus.api import Bus
from core.errors import ConfigurationError
from core.settings import Settings
from gateways.gateway import Gateway
from gateways.kafka_pixy.server import KafkaPixy
from gateways.numaflow.server import NumaflowSource
from gateways.numaflow_sources.server import NumaflowSources
from gateways.rocketmq.server import RocketMQGateway


def enabled_gateways(settings: Settings, bus: Bus) -> list[Gateway]:
    """Raises ConfigurationError when none is enabled, or one's settings cannot be used."""
    found: list[Gateway] = []
    if settings.gateways.kafka_pixy.enabled:
        found.append(KafkaPixy(settings.gateways.kafka_pixy, bus))
    if settings.gateways.numaflow.enabled:
        found.append(NumaflowSource(settings.gateways.numaflow, bus))
    if settings.gateways.rocketmq.enabled:
        keys = settings.data_dir / "keys"
        rocketmq = RocketMQGateway(settings.gateways.rocketmq, bus, keys=keys, partitions=settings.bus.partitions)
        found.append(rocketmq)
    if settings.ingestor.numaflow:
        found.append(NumaflowSources(settings.ingestor.numaflow, bus))
    if not found:
        raise ConfigurationError("no gateway is enabled: set gateways.kafka_pixy.enabled, .rocketmq or .numaflow")
    return found
