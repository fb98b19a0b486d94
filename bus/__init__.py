"""The partitioned, durable log that everything travels on."""

from bus.api import (
    Bus,
    GroupRecord,
    Lives,
    Once,
    PartitionState,
    Position,
    Record,
    SequenceStamp,
    StoredRecord,
    TopicPartition,
    partition_of,
)

__all__ = [
    "Bus",
    "GroupRecord",
    "Lives",
    "Once",
    "PartitionState",
    "Position",
    "Record",
    "SequenceStamp",
    "StoredRecord",
    "TopicPartition",
    "partition_of",
]
