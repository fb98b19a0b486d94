"""Which partition holds a message group. Pure."""


def message_group_partition(group: str, partitions: int) -> int:
    """The partition of a message group: Java's String.hashCode, non-negative remainder, as in stock producers."""
    value = 0
    units = group.encode("utf-16-be", "surrogatepass")
    for index in range(0, len(units), 2):
        value = (value * 31 + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return signed % partitions
