"""The public names; docs/compatibility.md says for how long they are kept."""

from pathlib import Path

import candlewright
from candlewright.client.aio import AsyncClient
from candlewright.client.sync import Client

LIST = Path(__file__).with_name("public_names.txt")


def public_names() -> list[str]:
    """The names of the package, and the methods of both clients."""
    calls = [
        f"{kind.__name__}.{name}" for kind in (Client, AsyncClient) for name in dir(kind) if not name.startswith("_")
    ]
    return sorted([*candlewright.__all__, *calls])


def test_a_public_name_is_added_or_removed_on_purpose() -> None:
    listed = LIST.read_text().split()
    assert public_names() == listed, f"the interface changes: see docs/compatibility.md, and update {LIST.name}"


def test_every_public_name_is_there() -> None:
    assert all(getattr(candlewright, name) is not None for name in candlewright.__all__)
