"""The suspended triggers, and the notices to their owners: an Error on the trigger's topic and on its callback's.

No client mistakes an Error for an event. It is sent once the suspension is stored, and again to later subscribers while
the trigger stays suspended. Pure.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import streams
from candlewright.wire.frames import encode_body
from protobuf import records_pb2 as rec
from relay.topics import served_by

CODE = "TRIGGER_SUSPENDED"
#: An Error has at most 64 KiB.
_MAX_REASON = 8_000


@dataclass(frozen=True, slots=True)
class Notice:
    """The notice that `trigger_id` is suspended, for one of its topics."""

    topic: bytes
    trigger_id: str


class Suspensions:
    def __init__(self) -> None:
        self._entries: dict[str, rec.TriggerEntry] = {}
        #: Suspended triggers by topic, in the order of their suspension.
        self._by_topic: dict[bytes, dict[str, None]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def put(self, entry: rec.TriggerEntry) -> None:
        """Add or replace a trigger, suspended or not."""
        name = entry.registration.trigger_id
        self.remove(name)
        if entry.suspended_reason and not entry.is_leaving:
            self._entries[name] = entry
            for topic in _topics_of(entry):
                self._by_topic.setdefault(topic, {})[name] = None

    def remove(self, trigger_id: str) -> None:
        entry = self._entries.pop(trigger_id, None)
        for topic in _topics_of(entry) if entry is not None else ():
            del self._by_topic[topic][trigger_id]
            if not self._by_topic[topic]:
                del self._by_topic[topic]

    def clear(self) -> None:
        self._entries.clear()
        self._by_topic.clear()

    def of(self, trigger_id: str) -> list[Notice]:
        """The notices of a trigger; empty if it is not suspended."""
        entry = self._entries.get(trigger_id)
        return [Notice(topic, trigger_id) for topic in _topics_of(entry)] if entry is not None else []

    def under(self, subscription: bytes) -> list[Notice]:
        """The notices to send for a new subscription."""
        found = served_by(subscription, self._by_topic)
        return [Notice(topic, name) for topic in found for name in self._by_topic[topic]]

    def body(self, notice: Notice, newest_sequence: int) -> bytes | None:
        """The type id and message of a notice; None if the trigger was removed or registered again since."""
        entry = self._entries.get(notice.trigger_id)
        if entry is None:
            return None
        error = cw.Error(
            code=CODE,
            text=entry.suspended_reason[:_MAX_REASON],
            request_id=notice.trigger_id,
            topic=streams.trigger(notice.trigger_id),
            newest_sequence=newest_sequence,
            registered_at=entry.registration.registered_at,
        )
        return encode_body(error)


def _topics_of(entry: rec.TriggerEntry) -> Sequence[bytes]:
    own = streams.trigger(entry.registration.trigger_id).encode()
    callback = entry.registration.callback_id
    return (own, streams.response(callback).encode()) if callback else (own,)
