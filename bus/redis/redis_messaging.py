"""`RedisMessaging`: see `bus.messaging`; README.md has the layout of its keys."""

from collections.abc import Sequence

from bus.limits import pending_lost
from bus.lives import LATE_ACKNOWLEDGEMENTS, life_of
from bus.messaging import MAX_BYTES, ORDERED_LOOK, Claim, Delivery, Half, Received, Settled
from bus.redis.redis_bus import RedisBus
from bus.redis.replies import stored
from bus.redis.store import Argument, Store
from candlewright.wire.errors import BusError, BusFull

_MAX_LETTERS = 100
#: How long a repeatable call is remembered.
_CALL_SECONDS = 600
_LATE = b"L"
_SETTLED = {
    b"D": Settled.DONE,
    b"G": Settled.BEFORE,
    b"S": Settled.STALE,
    b"U": Settled.UNKNOWN,
    _LATE: Settled.UNKNOWN,
}


class RedisMessaging:
    """On the server of `bus`, over its own connections. Safe for threads."""

    def __init__(self, bus: RedisBus, *, retry_seconds: float = 15.0, timeout_seconds: float = 10.0) -> None:
        self._bus = bus
        self._store = Store(bus.url, retry_seconds=retry_seconds, timeout_seconds=timeout_seconds)

    # ---- deliveries
    def receive(
        self,
        topic: str,
        group: str,
        consumer: str,
        *,
        partition: int,
        max_records: int,
        hide_seconds: float,
        default_hide_seconds: float,
        in_order: bool = False,
    ) -> Received:
        hide, default = _milliseconds(hide_seconds), _milliseconds(default_hide_seconds)
        limits = max_records, MAX_BYTES, ORDERED_LOOK
        call = (*self._bus._next_call(), _CALL_SECONDS)
        reply = self._store.run(
            "deliver", topic, partition, group, consumer, hide, default, int(in_order), *limits, *call
        )
        if reply[0] == b"N":
            raise BusError(f"topic {topic} has no group {group}")
        _, due, lost, attempts, entries, lives = reply
        if lost:
            pending_lost(topic, group, lost)
        records = stored(topic, partition, entries)
        history = (lives or b"").decode()
        found = tuple(
            Delivery(record, attempt, life_of(history, record.offset))
            for record, attempt in zip(records, attempts, strict=True)
        )
        return Received(found, int(due) / 1_000 if due else None, lost)

    def acknowledge(self, claims: Sequence[Claim]) -> list[Settled]:
        return self._settle(claims, "done")

    def postpone(self, claim: Claim, delay_seconds: float) -> Settled:
        return self._settle([claim], "later", _milliseconds(delay_seconds))[0]

    def give_back(self, claims: Sequence[Claim]) -> list[Settled]:
        return self._settle(claims, "unseen")

    def bury(self, claim: Claim, *, queue: str, id: str, payload: bytes) -> Settled:
        return self._settle([claim], "bury", queue, id, payload)[0]

    # ---- timed messages
    def add(self, queue: str, id: str, payload: bytes, *, delay_seconds: float) -> bool:
        return self._keep("later", queue, "add", id, _milliseconds(delay_seconds), payload)

    def claim_due(self, queue: str, *, max_items: int, lease_seconds: float) -> list[tuple[str, bytes]]:
        reply = self._store.run("later", queue, "claim", max_items, _milliseconds(lease_seconds))
        return [(id.decode(), payload) for id, payload in zip(reply[::2], reply[1::2], strict=True)]

    def remove(self, queue: str, id: str, *, registry: str) -> None:
        self._store.run("later", queue, "remove", id, f"cw:once:{registry}:{id}")

    def next_due(self, queue: str) -> float | None:
        left = self._store.run("later", queue, "next")
        return int(left) / 1_000 if left else None

    def kept_bytes(self, queue: str) -> int:
        return int(self._store.run("later", queue, "kept"))

    # ---- half messages
    def prepare(self, queue: str, id: str, payload: bytes, *, ask_after_seconds: float) -> bool:
        return self._keep("half", queue, "prepare", id, _milliseconds(ask_after_seconds), payload)

    def half(self, queue: str, id: str) -> bytes | None:
        found: bytes | None = self._store.run("half", queue, "look", id)
        return found

    def claim_unresolved(self, queue: str, *, max_items: int, again_seconds: float) -> list[Half]:
        reply = self._store.run("half", queue, "claim", max_items, _milliseconds(again_seconds))
        return [Half(reply[at].decode(), reply[at + 1], int(reply[at + 2])) for at in range(0, len(reply), 3)]

    def count_asked(self, queue: str, id: str, again_seconds: float) -> int:
        return int(self._store.run("half", queue, "asked", id, _milliseconds(again_seconds)))

    def resolve(
        self, queue: str, id: str, outcome: str, *, payload: bytes = b"", delay_seconds: float | None = None
    ) -> str:
        delay = "" if delay_seconds is None else str(_milliseconds(delay_seconds))
        held: bytes = self._store.run("half", queue, "resolve", id, outcome, payload, delay)
        return held.decode()

    # ---- mail
    def post(self, address: str, payload: bytes, keep_seconds: float) -> None:
        box = f"cw:mail:{address}"
        commands = [
            ("RPUSH", box, payload),
            ("LTRIM", box, -_MAX_LETTERS, -1),
            ("PEXPIRE", box, _milliseconds(keep_seconds)),
            ("INCR", "cw:mail"),
        ]
        self._store.calls(commands)

    def posted(self) -> int:
        return int(self._store.call("GET", "cw:mail") or 0)

    def collect(self, addresses: Sequence[str]) -> list[bytes | None]:
        return self._store.calls([("LPOP", f"cw:mail:{address}") for address in addresses]) if addresses else []

    def close(self) -> None:
        self._store.close()

    def _keep(self, script: str, queue: str, *arguments: Argument) -> bool:
        outcome = int(self._store.run(script, queue, *arguments, self._bus._max_bytes))
        if outcome < 0:
            raise BusFull(f"{queue}, beside the log,", -outcome, self._bus._max_bytes)
        return outcome == 1

    def _settle(self, claims: Sequence[Claim], verb: str, *details: Argument) -> list[Settled]:
        if not claims:
            return []
        flat: list[Argument] = [verb, *details, *("" for _ in range(3 - len(details)))]
        for claim in claims:
            flat += claim
        outcomes = self._store.run("settle", *flat)
        for claim, outcome in zip(claims, outcomes, strict=True):
            if outcome == _LATE:
                LATE_ACKNOWLEDGEMENTS.labels(claim.topic).inc()
        return [_SETTLED[outcome] for outcome in outcomes]


def _milliseconds(seconds: float) -> int:
    return max(0, round(seconds * 1_000))
