"""The relay's reads and writes for triggers on the bus. All methods raise BusError."""

from collections.abc import Iterable, Sequence

from google.protobuf.message import DecodeError

from bus import topics as bus_topics
from bus.api import Bus, Lives, Record, StoredRecord
from bus.dead_letters import Letter, put_aside
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import streams
from candlewright.wire.errors import OffsetOutOfRange
from core.log import get_logger
from protobuf import records_pb2 as rec
from relay import metrics
from relay.live.follower import PART
from relay.store import RelayStore
from relay.triggers.commands import Change, Delete, DropView, LeaveJoint, Save, SaveViews
from relay.triggers.events import Loaded

#: The reader that holds controls that not all partitions have carried out, their progress, and trigger events.
READER = "relay"
#: Partition of the pipeline -> its newest progress: the end of the controls that it has carried out.
TABLE_PROGRESS = "relay_trigger_progress"
_READ_RECORDS = 1_000
log = get_logger()


class TriggerStore:
    """For use by one thread. The hold on the progress topic moves only after the effects of what was read are saved."""

    def __init__(self, bus: Bus, relay_store: RelayStore) -> None:
        self._bus = bus
        self._relay_store = relay_store
        self._lives = Lives()
        self._progress_at = 0
        #: The end of the controls that each partition has carried out, as far as that is not noted yet.
        self._unnoted: dict[str, bytes] = {}
        self._held_controls = -1

    def write_over(self, bus: Bus) -> None:
        """Write with this connection, which carries the registry's term; call first."""
        self._bus = bus

    def load(self) -> Loaded:
        self._relay_store.prepare()
        self._progress_at = self._start_of_progress()
        self._unnoted = {}
        self._held_controls = -1
        items = self._bus.items(bus_topics.TABLE_TRIGGERS)
        entries = {name: entry for name, value in items.items() if (entry := _read(name, value)) is not None}
        progress = {
            int(key): int(value)
            for key, value in self._bus.items(TABLE_PROGRESS).items()
            if key.isdecimal() and value.isdigit()
        }
        return Loaded(
            entries,
            frozenset(self._bus.items(bus_topics.TABLE_JOINT_TRIGGERS)),
            progress,
            self._bus.partitions(bus_topics.TICKS),
            self._bus.state(bus_topics.TRIGGER_CONTROLS)[0].end,
            self._views(),
        )

    def _views(self) -> dict[str, rec.ViewEntry]:
        found = {}
        for name, value in self._bus.items(bus_topics.TABLE_VIEWS).items():
            try:
                found[name] = rec.ViewEntry.FromString(value)
            except DecodeError:
                metrics.BAD_RECORDS.labels(bus_topics.TABLE_VIEWS).inc()
        return found

    def _start_of_progress(self) -> int:
        state = self._bus.state(bus_topics.TRIGGER_PROGRESS)[0]
        held = self._bus.holds(bus_topics.TRIGGER_PROGRESS, READER).get(0)
        if held is None:
            self._bus.hold(bus_topics.TRIGGER_PROGRESS, READER, {0: state.first})
            held = state.first
        # A store that lost its newest records assigns their offsets again.
        place = bus_topics.TRIGGER_PROGRESS, 0
        return self._lives.rewound(place, max(held, state.first), state.lives, end=state.end)

    def forget(self) -> None:
        """Forget cached state, because after an outage the store may be a new one."""
        self._relay_store.forget_preparation()

    # ---- changes

    def write(self, changes: Sequence[Change]) -> dict[int, int]:
        """Write changes: the tables first, so that nothing runs that they do not name; returns the offset of each
        control.
        """
        joining = {change.trigger_id: b"" for change in changes if change.joins}
        if joining:
            self._bus.put(bus_topics.TABLE_JOINT_TRIGGERS, joining)
        self._put(change.entry for change in changes)
        records = [Record(change.control.SerializeToString(), key=change.trigger_id.encode()) for change in changes]
        positions = self._bus.publish(bus_topics.TRIGGER_CONTROLS, records)
        return {change.number: position.offset for change, position in zip(changes, positions, strict=True)}

    def update(self, commands: Sequence[Save | LeaveJoint | Delete]) -> None:
        """Carry out updates; those of one trigger stay in order."""
        self._put(command.entry for command in commands if isinstance(command, Save))
        leaving = [command.trigger_id for command in commands if not isinstance(command, Save)]
        if leaving:
            self._bus.delete(bus_topics.TABLE_JOINT_TRIGGERS, leaving)
        gone = [command.trigger_id for command in commands if isinstance(command, Delete)]
        if gone:
            self._bus.delete(bus_topics.TABLE_TRIGGERS, gone)

    def change_views(self, command: SaveViews | DropView) -> None:
        """Write changes of views, keyed by name in lower case."""
        if isinstance(command, DropView):
            self._bus.delete(bus_topics.TABLE_VIEWS, [command.name.lower()])
        else:
            values = {entry.name.lower(): entry.SerializeToString() for entry in command.entries}
            self._bus.put(bus_topics.TABLE_VIEWS, values)

    def _put(self, entries: Iterable[rec.TriggerEntry]) -> None:
        values = {entry.registration.trigger_id: entry.SerializeToString() for entry in entries}
        if values:
            self._bus.put(bus_topics.TABLE_TRIGGERS, values)

    # ---- progress of the pipeline

    def read_progress(self) -> list[rec.TriggerProgress]:
        """New progress of the pipeline; after a restart, returns it again from the last `commit_progress` on."""
        try:
            records = self._read(self._progress_at)
        except OffsetOutOfRange as error:
            log.warning("progress_trimmed_unread", offset=self._progress_at, first=error.first)
            metrics.BAD_RECORDS.labels(bus_topics.TRIGGER_PROGRESS).inc()
            records = self._read(error.first)
        if not records:
            return []
        controls_end = self._bus.state(bus_topics.TRIGGER_CONTROLS)[0].end
        partitions = self._bus.partitions(bus_topics.TICKS)
        found, letters = [], []
        for record in records:
            try:
                progress = rec.TriggerProgress.FromString(record.value)
            except DecodeError:
                letters.append(Letter.of(record, "not a TriggerProgress"))
                continue
            # The numbers after the last partition are the joint one, and the functions in the driver.
            if progress.partition > partitions + 1 or progress.controls_end > controls_end:
                reason = f"partition {progress.partition} at control {progress.controls_end} of {controls_end}"
                letters.append(Letter.of(record, reason))
            else:
                found.append(progress)
                self._unnoted[str(progress.partition)] = str(progress.controls_end).encode()
        if letters:
            metrics.BAD_RECORDS.labels(bus_topics.TRIGGER_PROGRESS).inc(len(letters))
            put_aside(self._bus, PART, letters)
        self._progress_at = records[-1].offset + 1
        return found

    def _read(self, offset: int) -> list[StoredRecord]:
        """Raises RecordsLost, after which `load` finds where to continue."""
        topic = bus_topics.TRIGGER_PROGRESS
        return self._bus.read(topic, 0, offset, max_records=_READ_RECORDS, lives=self._lives)

    def commit_progress(self, oldest_needed: int) -> None:
        """Note that the effects of all progress read so far are saved, so it need not be read again, and hold the
        controls from `oldest_needed` on, which a partition has not carried out.
        """
        if self._unnoted:
            self._bus.put(TABLE_PROGRESS, self._unnoted)
            self._bus.hold(bus_topics.TRIGGER_PROGRESS, READER, {0: self._progress_at})
            self._unnoted = {}
        if oldest_needed != self._held_controls:
            self._bus.hold(bus_topics.TRIGGER_CONTROLS, READER, {0: oldest_needed})
            self._held_controls = oldest_needed

    def end_of_progress(self, known: int, seconds: float) -> int:
        """The end of the pipeline's progress, as soon as it is beyond `known`, or after this time; for any thread."""
        place = bus_topics.TRIGGER_PROGRESS, 0
        return self._bus.states_after({place: known}, seconds)[place].end

    # ---- events

    def ends_of_events(self) -> dict[int, int]:
        return {partition: state.end for partition, state in enumerate(self._bus.state(bus_topics.TRIGGER_EVENTS))}

    def count_events(self, found: cw.TriggerList) -> None:
        numbers = self.newest_numbers([info.trigger_id for info in found.triggers])
        for info, number in zip(found.triggers, numbers, strict=True):
            info.events = number

    def add_costs(self, info: cw.TriggerInfo) -> None:
        """Add the trigger's costs, summed over the partitions of the pipeline."""
        for value in self._bus.items(bus_topics.TABLE_TRIGGER_COSTS).values():
            try:
                noted = rec.TriggerCosts.FromString(value)
            except DecodeError:
                metrics.BAD_RECORDS.labels(bus_topics.TABLE_TRIGGER_COSTS).inc()
                continue
            for cost in noted.costs:
                if cost.trigger_id == info.trigger_id:
                    info.partitions += cost.partitions
                    info.kept_bytes += cost.state_bytes
                    info.steps += cost.steps
                    info.waiting_rows += cost.waiting_rows
                    info.behind_ns = max(info.behind_ns, cost.behind_ns)
                    info.row_ns = max(info.row_ns, cost.row_ns)

    def newest_numbers(self, trigger_ids: Sequence[str]) -> list[int]:
        """The number of each trigger's newest event, which equals the count of its events."""
        return self._bus.last_sequences([streams.trigger(trigger_id) for trigger_id in trigger_ids])


def _read(name: str, value: bytes) -> rec.TriggerEntry | None:
    """A stored entry; None (counted) if it cannot be read, since one bad entry must not stop the rest."""
    try:
        entry = rec.TriggerEntry.FromString(value)
    except DecodeError:
        entry = rec.TriggerEntry()
    if entry.registration.trigger_id != name:
        metrics.BAD_RECORDS.labels(bus_topics.TABLE_TRIGGERS).inc()
        return None
    return entry
