"""The states of streams in named parts, taken and compressed again only after a change."""

import time
from collections.abc import Iterator, Mapping

from candlewright_cep import TriggerStream
from triggers.packing import squeezed, unsqueezed

__all__ = ["Parts", "States", "states_in"]

#: The state of a stream, see `TriggerStream.parts`.
Parts = Mapping[str, bytes]


class States:
    """Of the streams of each input. `save_ns`: processor time of the last `written`."""

    def __init__(self, streams: dict[int, TriggerStream]) -> None:
        self._streams = streams
        self._taken: dict[int, Parts] = {}
        # Each part of a state with its squeezed form.
        self._packed: dict[int, dict[str, tuple[bytes, bytes]]] = {}
        self.save_ns = 0

    def of(self, label: int) -> Parts:
        found = self._taken.get(label)
        if found is None:
            found = self._taken[label] = self._streams[label].parts()
        return found

    def changed(self, label: int) -> None:
        self._taken.pop(label, None)

    def restored(self, label: int, state: Parts) -> None:
        """The stream has been given this state."""
        self._taken[label] = state

    def forget(self, label: int) -> None:
        for kept in (self._streams, self._taken, self._packed):
            kept.pop(label, None)

    @property
    def size(self) -> int:
        """In bytes, of the states that were last taken."""
        return sum(len(part) for state in self._taken.values() for part in state.values())

    def written(self) -> Iterator[tuple[str, bytes]]:
        """The parts by name; an unchanged part is the same object as before."""
        for label in sorted(self._streams):
            packed = self._packed.get(label, {})
            if not packed or packed[""][0] is not self._taken.get(label, {}).get(""):
                began = time.thread_time_ns()
                packed = {
                    name: known if (known := packed.get(name)) and known[0] is part else (part, squeezed(part))
                    for name, part in self.of(label).items()
                }
                self._packed[label] = packed
                self.save_ns = time.thread_time_ns() - began
            for name, (_, written) in packed.items():
                yield (f"{label}.{name}" if name else str(label)), written


def states_in(parts: Mapping[str, bytes]) -> dict[int, Parts]:
    """The states by input, out of parts that `written` has named; other parts are left out."""
    found: dict[int, dict[str, bytes]] = {}
    for name, written in parts.items():
        label, _, part = name.partition(".")
        if label.lstrip("-").isdecimal():
            found.setdefault(int(label), {})[part] = unsqueezed(written)
    return dict(found)
