"""Names a partition of a topic, and says what it holds."""

from dataclasses import dataclass, field

__all__ = ["PartitionState", "TopicPartition"]

TopicPartition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class PartitionState:
    """Offsets first to end-1 are kept; `size_bytes` estimates their size; `lives`: see bus.lives."""

    first: int
    end: int
    size_bytes: int
    lives: str = field(default="", compare=False)
