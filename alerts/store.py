"""What the alerts keep on the bus: waiting deliveries, outcomes, silences, and requests of operators."""

from collections.abc import Sequence
from dataclasses import replace

import orjson

from alerts.alert import Delivery, Opened, Outcome, Silence, Status
from bus import topics
from bus.api import Bus, Record, Swap
from core.log import get_logger

__all__ = ["AlertStore"]

log = get_logger()

#: Within this time an outcome is published only once, even if the process ends before it forgets the delivery.
_REMEMBER_SECONDS = 25 * 3_600.0
_KEEP_ABANDONED_SECONDS = 7 * 86_400.0
#: How long an alert can be resolved.
_KEEP_OPENED_SECONDS = 30 * 86_400.0
#: How long outcomes stay on the topic after they reached the table.
_KEEP_OUTCOMES_SECONDS = 3_600.0


class AlertStore:
    """Methods raise BusUnavailable, and may be repeated without harm."""

    def __init__(self, bus: Bus) -> None:
        self._bus = bus
        #: The keys of deliveries whose outcomes are on the bus, and whose rows are not deleted yet.
        self._over: list[str] = []

    def open(self) -> None:
        self._bus.create_topic(topics.DELIVERIES, 1)

    def waiting(self) -> list[Delivery]:
        """The deliveries that an earlier process left unfinished."""
        found = [
            delivery
            for value in self._bus.items(topics.TABLE_ALERTS_WAITING).values()
            if (delivery := _delivery(value)) is not None
        ]
        finished = self._bus.recall(topics.REGISTRY_DELIVERIES, [delivery.name for delivery in found])
        done = [delivery.key for delivery, outcome in zip(found, finished, strict=True) if outcome is not None]
        if done:
            self._bus.delete(topics.TABLE_ALERTS_WAITING, done)
        return [delivery for delivery, outcome in zip(found, finished, strict=True) if outcome is None]

    def keep(self, deliveries: Sequence[Delivery], read: Swap | None = None) -> None:
        """`read`: the feed's new positions, which become durable in the same step."""
        rows = {each.key: each.to_bytes() for each in deliveries}
        if read is not None:
            swaps = [read]
            if rows:
                (key, value), *others = rows.items()
                swaps.append(Swap(topics.TABLE_ALERTS_WAITING, key, None, value, dict(others)))
            if self._bus.commit(swaps, {}):
                return
            # The store lost the previous positions, or an event whose delivery still exists was read again.
        self._bus.put(topics.TABLE_ALERTS_WAITING, rows)
        if read is not None:
            self._bus.put(read.table, {read.key: read.new})

    def keep_opened(self, opened: Sequence[Opened]) -> None:
        self._bus.put(
            topics.TABLE_ALERTS_OPENED,
            {each.key: each.to_bytes() for each in opened},
            keep_seconds=_KEEP_OPENED_SECONDS,
        )

    def opened(self) -> list[Opened]:
        found = []
        for value in self._bus.items(topics.TABLE_ALERTS_OPENED).values():
            try:
                found.append(Opened.from_bytes(value))
            except (TypeError, ValueError, KeyError) as error:
                # Written by another release.
                log.error("alert_unreadable", error=str(error))
        return found

    def finish(self, outcomes: Sequence[Outcome]) -> None:
        """The rows of these deliveries stay until `forget`; `waiting` does not return them."""
        abandoned = {each.delivery.key: each.delivery for each in outcomes if each.status is Status.ABANDONED}
        if abandoned:
            self._bus.put(
                topics.TABLE_ALERTS_ABANDONED,
                {key: delivery.to_bytes() for key, delivery in abandoned.items()},
                keep_seconds=_KEEP_ABANDONED_SECONDS,
            )
        self._bus.publish_new(
            topics.DELIVERIES,
            [Record(each.to_bytes(), key=each.delivery.key.encode()) for each in outcomes],
            registry=topics.REGISTRY_DELIVERIES,
            names=[each.delivery.name for each in outcomes],
            keep_seconds=_REMEMBER_SECONDS,
        )
        self._over += (each.delivery.key for each in outcomes)

    def forget(self) -> None:
        """Delete the rows of finished deliveries."""
        if self._over:
            self._bus.delete(topics.TABLE_ALERTS_WAITING, self._over)
            self._over = []

    def trim(self) -> None:
        self._bus.trim(topics.DELIVERIES, keep_seconds=_KEEP_OUTCOMES_SECONDS)

    # ---- what people asked for
    def silences(self) -> list[Silence]:
        return [Silence(**orjson.loads(value)) for value in self._bus.items(topics.TABLE_SILENCES).values()]

    def silence(self, silence: Silence, seconds: float) -> None:
        self._bus.put(topics.TABLE_SILENCES, {silence.silence_id: orjson.dumps(silence)}, keep_seconds=seconds)

    def end_silences(self, ids: Sequence[str]) -> None:
        self._bus.delete(topics.TABLE_SILENCES, ids)

    def abandoned(self) -> list[Delivery]:
        found = map(_delivery, self._bus.items(topics.TABLE_ALERTS_ABANDONED).values())
        return sorted((each for each in found if each is not None), key=lambda each: each.taken_at)

    def send_again(self, keys: Sequence[str]) -> None:
        """Ask the current or the next process to send a delivery again that was given up."""
        self._bus.put(topics.TABLE_ALERTS_AGAIN, dict.fromkeys(keys, b""))

    def asked_again(self, at: float) -> list[Delivery]:
        """Deliveries to send again, which are then stored like new ones."""
        asked = [*self._bus.items(topics.TABLE_ALERTS_AGAIN)]
        if not asked:
            return []
        # Their rows must not be deleted later, because they then belong to the new attempts.
        self.forget()
        values = self._bus.get(topics.TABLE_ALERTS_ABANDONED, asked)
        found = [delivery for value in values if value is not None and (delivery := _delivery(value)) is not None]
        anew = [replace(each, attempts=0, error="", replay=each.replay + 1, taken_at=at) for each in found]
        if anew:
            self.keep(anew)
            self._bus.delete(topics.TABLE_ALERTS_ABANDONED, [each.key for each in anew])
        self._bus.delete(topics.TABLE_ALERTS_AGAIN, asked)
        return anew


def _delivery(value: bytes) -> Delivery | None:
    """None for a row written by another release."""
    try:
        return Delivery.from_bytes(value)
    except (TypeError, ValueError) as error:
        log.error("delivery_unreadable", error=str(error))
        return None
