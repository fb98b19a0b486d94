"""Says what a request waits for while no ingestor offers a slot for its venue. Pure."""

from collections.abc import Collection

_SHOWN = 10


def waiting_for_slot(venue: str, served: Collection[str]) -> str:
    """A sentence; empty if the venue is served."""
    if venue in served:
        return ""
    names = sorted(served)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"waiting for a slot of {venue} (served now: {', '.join(names[:_SHOWN]) or 'none'}{more})"
