"""Decisions about triggers, without a bus: any order of requests, reports, failures and restarts."""

from collections import Counter
from itertools import count
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as hyp

from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import ON_TOPIC, decode_body
from protobuf import records_pb2 as rec
from relay.asked import Peer
from relay.settings import RelayLimits
from relay.triggers import commands as do
from relay.triggers import events as ev
from relay.triggers.asked import RegisterAsked
from relay.triggers.requests import clean
from relay.triggers.state import TriggerState

Ack = ing.CEPTriggerAck
PEER = Peer(b"p", False)
PARTITIONS = 2
TIMEOUT = 30.0
IDS = ["a", "b"]
TICKERS = ["X/Y.V", "Z/Y.V"]


def request(trigger_id: str = "a", sql: str = "s", *tickers: str, **fields: Any) -> ing.CEPTriggerRequest:
    return clean(ing.CEPTriggerRequest(trigger_id=trigger_id, sql_pattern=sql, tickers=tickers, **fields))


class Partition:
    """The triggers that one partition of the pipeline runs, by id, after the controls that it has read."""

    def __init__(self) -> None:
        self.end = 0
        self.runs: dict[str, int] = {}
        self.known: dict[str, int] = {}

    def read(self, controls: list[rec.TriggerControl], end: int) -> None:
        for control in controls[self.end : end]:
            if control.HasField("remove"):
                self.runs.pop(control.remove.trigger_id, None)
            elif control.register.version > self.known.get(control.register.trigger_id, 0):
                self.known[control.register.trigger_id] = control.register.version
                self.runs[control.register.trigger_id] = control.register.version
        self.end = max(self.end, end)


class World:
    """The bus and the pipeline survive; the relay may die between any two of its writes."""

    def __init__(self) -> None:
        self.table: dict[str, bytes] = {}
        self.joint: set[str] = set()
        self.controls: list[rec.TriggerControl] = []
        self.partitions = [Partition() for _ in range(PARTITIONS + 1)]
        self.saved: dict[int, int] = {}
        self.now = 0.0
        self.clock = count(1_000)
        self.peers = count()
        self.asked: set[bytes] = set()
        self.answers: Counter[bytes] = Counter()
        self.acks: dict[bytes, Ack] = {}
        #: Of each register request the id and the least version that answers it.
        self.versions: dict[bytes, tuple[str, int]] = {}
        self.checks: list[RegisterAsked] = []
        self.awaited: set[int] = set()
        self.followed: set[str] = set()
        #: For each suspension the topics on which it was published, since the last start.
        self.told: Counter[tuple[str, str]] = Counter()
        self.start()

    def start(self) -> None:
        """A relay that dies does not answer the clients that wait for it."""
        self.state = TriggerState(RelayLimits(), 100, TIMEOUT)
        self.asked = {peer for peer in self.asked if self.answers[peer]}
        self.checks, self.awaited, self.followed, self.told = [], set(), set(), Counter()
        entries = {name: rec.TriggerEntry.FromString(value) for name, value in self.table.items()}
        joint = frozenset(self.joint)
        self.take(ev.Loaded(entries, joint, dict(self.saved), PARTITIONS, len(self.controls)))

    def take(self, event: ev.Event, dies_after: int = 99) -> None:
        """Carry out the state's commands; after `dies_after` writes the relay is killed and started again."""
        todo = self.state.handle(event)
        writes = 0
        while todo:
            changes = [command for command in todo if isinstance(command, do.Change)]
            steps: list[Any] = [self._update(command) for command in todo if isinstance(command, do.Save)]
            steps += [self._leave(c.trigger_id) for c in todo if isinstance(c, do.LeaveJoint | do.Delete)]
            steps += [self._delete(command.trigger_id) for command in todo if isinstance(command, do.Delete)]
            offsets: dict[int, int] = {}
            steps += [self._join(change) for change in changes] + [self._update(change) for change in changes]
            steps += [self._publish(change, offsets) for change in changes]
            for command in todo:
                self._carry_out(command)
            for step in steps:
                if writes >= dies_after:
                    self.start()
                    return
                step()
                writes += 1
            todo = self.state.handle(ev.Written(offsets, self.now)) if changes else []

    def _carry_out(self, command: do.Command) -> None:
        if isinstance(command, do.Answer):
            self.answers[command.peer.identity] += 1
            self.acks[command.peer.identity] = command.ack
            if command.ack.status == Ack.REGISTERED and command.peer.identity in self.versions:
                name, version = self.versions[command.peer.identity]
                # An id that was replaced or removed in the meantime has had this version before.
                assert all(part.known.get(name, 0) >= version for part in self.partitions[:PARTITIONS])
        elif isinstance(command, do.Check):
            self.checks.append(command.asked)
        elif isinstance(command, do.AwaitEvents):
            self.awaited.add(command.change)
        elif isinstance(command, do.Follow):
            assert (command.topic in self.followed) is not command.is_wanted
            (self.followed.add if command.is_wanted else self.followed.discard)(command.topic)
        elif isinstance(command, do.Tell):
            assert all(self.entry(notice.trigger_id).suspended_reason for notice in command.notices)
            self.told.update((notice.trigger_id, notice.topic.decode()) for notice in command.notices)

    def _update(self, command: do.Save | do.Change) -> Any:
        value, name = command.entry.SerializeToString(), command.entry.registration.trigger_id
        return lambda: self.table.__setitem__(name, value)

    def _join(self, change: do.Change) -> Any:
        return lambda: self.joint.add(change.trigger_id) if change.joins else None

    def _leave(self, name: str) -> Any:
        return lambda: self.joint.discard(name)

    def _delete(self, name: str) -> Any:
        return lambda: self.table.pop(name, None)

    def _publish(self, change: do.Change, offsets: dict[int, int]) -> Any:
        def publish() -> None:
            offsets[change.number] = len(self.controls)
            self.controls.append(change.control)

        return publish

    # ---- steps

    def peer(self) -> Peer:
        peer = Peer(b"%d" % next(self.peers), False)
        self.asked.add(peer.identity)
        return peer

    def register(self, wanted: ing.CEPTriggerRequest) -> bytes:
        peer = self.peer()
        self.take(RegisterAsked(peer, wanted, next(self.clock)))
        return peer.identity

    def remove(self, name: str, dies_after: int = 99) -> bytes:
        peer = self.peer()
        self.take(ev.RemoveAsked(peer, name), dies_after)
        return peer.identity

    def check(self, *, is_sound: bool = True, is_joint: bool = False, dies_after: int = 99) -> None:
        if self.checks:
            asked = self.checks.pop(0)
            self.versions[asked.peer.identity] = (asked.trigger_id, asked.at_ns)
            outcome = ev.Sound((), is_joint, 0) if is_sound else ev.Refused(Ack.INVALID_SQL, "1:1: no")
            self.take(ev.Checked(asked, outcome), dies_after)

    def report(self, partition: int, end: int | None = None, *suspended: rec.TriggerSuspended, saves: int = 99) -> None:
        part = self.partitions[partition]
        part.read(self.controls, len(self.controls) if end is None else min(end, len(self.controls)))
        progress = rec.TriggerProgress(partition=partition, controls_end=part.end, suspended=suspended)
        self.take(ev.ProgressMade(progress), saves)
        self.saved[partition] = part.end

    def suspend(self, name: str, partition: int = 0, saves: int = 99) -> None:
        version = self.entry(name).registration.version
        note = rec.TriggerSuspended(trigger_id=name, version=version, reason="too many rows")
        self.report(partition, None, note, saves=saves)

    def list(self, **query: Any) -> dict[str, cw.TriggerInfo]:
        [found] = self.state.handle(ev.ListAsked(PEER, cw.TriggerQuery(**query)))
        assert isinstance(found, do.AnswerList)
        return {info.trigger_id: info for info in found.found.triggers}

    def report_all(self) -> None:
        for partition in range(PARTITIONS + 1):
            self.report(partition)

    def deliver(self) -> None:
        done, self.awaited = frozenset(self.awaited), set()
        self.take(ev.EventsDelivered(done))

    def settle(self) -> None:
        while self.checks:
            self.check()
        self.report_all()
        self.deliver()

    def entry(self, name: str) -> rec.TriggerEntry:
        return rec.TriggerEntry.FromString(self.table[name])

    def status(self, peer: bytes) -> int | None:
        return self.acks[peer].status if peer in self.acks else None


def test_registered_is_sent_when_the_last_partition_has_passed_it() -> None:
    world = World()
    peer = world.register(request())
    world.check()
    world.report(0)
    assert world.status(peer) is None
    world.report(1, 0)
    assert world.status(peer) is None
    world.report(1)
    assert world.status(peer) == Ack.REGISTERED


def test_a_trigger_that_the_joint_partition_has_run_waits_for_it_too() -> None:
    world = World()
    first = world.register(request())
    world.check(is_joint=True)
    world.report(0)
    world.report(1)
    assert world.status(first) is None
    assert world.joint == {"a"}
    world.report(2)
    assert world.status(first) == Ack.REGISTERED
    second = world.register(request(sql="other"))
    world.check()
    world.report(0)
    world.report(1)
    assert (world.status(second), world.joint) == (None, {"a"})
    world.report(2)
    assert (world.status(second), world.joint) == (Ack.REGISTERED, set())
    third = world.register(request(sql="third"))
    world.check()
    world.report(0)
    world.report(1)
    assert world.status(third) == Ack.REGISTERED


def test_requests_for_one_id_are_served_in_their_order() -> None:
    world = World()
    peers = [world.register(request(sql="1")), world.register(request(sql="2")), world.remove("a")]
    peers.append(world.register(request(sql="3")))
    assert len(world.checks) == 1
    assert world.state.backlog == 4
    while world.checks:
        world.check()
    assert world.state.backlog == world.state.backlog_bytes == 0
    kinds = [control.WhichOneof("body") for control in world.controls]
    assert kinds == ["register", "register", "remove", "register"]
    world.report_all()
    assert [world.status(peer) for peer in peers] == [Ack.REGISTERED] * 4
    assert world.entry("a").registration.sql == "3"


def test_a_version_grows_even_when_the_clock_goes_back() -> None:
    world = World()
    world.register(request(sql="1"))
    world.check()
    world.clock = count(1)
    world.register(request(sql="2"))
    world.check()
    first, second = (control.register.version for control in world.controls)
    assert second == first + 1
    world.start()
    world.register(request(sql="3"))
    world.check()
    assert world.controls[-1].register.version == second + 1


def test_a_client_that_waits_too_long_is_notified_that_it_is_stored() -> None:
    world = World()
    peer = world.register(request())
    world.check()
    world.take(ev.TimePassed(TIMEOUT - 1))
    assert world.status(peer) is None
    world.take(ev.TimePassed(TIMEOUT))
    assert "stored" in world.acks[peer].error_message
    assert world.state.waiting == 0
    again = world.register(request())
    world.report_all()
    assert (world.status(again), len(world.controls)) == (Ack.REGISTERED, 1)


def test_a_failed_write_is_reported_and_its_effect_is_read_again() -> None:
    world = World()
    peer = world.peer()
    [check] = world.state.handle(RegisterAsked(peer, request(), 1_000))
    assert isinstance(check, do.Check)
    [change] = world.state.handle(ev.Checked(check.asked, ev.Sound((), False, 0)))
    assert isinstance(change, do.Change)
    [answer] = world.state.handle(ev.WriteFailed((change,), "Away."))
    assert answer == do.Answer(peer, Ack(trigger_id="a", status=Ack.ERROR, error_message="Away."))
    [refused] = world.state.handle(RegisterAsked(peer, request(), 1_001))
    assert isinstance(refused, do.Answer)
    assert "cannot be reached" in refused.ack.error_message
    world.take(ev.Loaded({"a": change.entry}, frozenset(), {}, PARTITIONS, 0))
    assert world.controls == [change.control]


def test_the_registered_triggers_may_not_grow_without_bound() -> None:
    state = TriggerState(RelayLimits(max_trigger_bytes=1_000), 100, TIMEOUT)
    state.handle(ev.Loaded({}, frozenset(), {}, PARTITIONS, 0))
    [answer] = state.handle(RegisterAsked(PEER, request(sql="x" * 1_000), 1))
    assert isinstance(answer, do.Answer)
    assert "1000 are allowed" in answer.ack.error_message


def test_live_topics_are_followed_from_the_first_trigger_to_the_last() -> None:
    world = World()
    for name in IDS:
        world.register(request(name, "s", *TICKERS))
    world.settle()
    assert world.followed == {f"TICKS:{ticker}" for ticker in TICKERS}
    world.register(request("a", "s", TICKERS[0]))
    world.remove("b")
    world.settle()
    assert world.followed == {f"TICKS:{TICKERS[0]}"}
    world.start()
    assert world.followed == {f"TICKS:{TICKERS[0]}"}
    world.remove("a")
    assert world.followed == set()


def test_a_suspended_trigger_runs_nowhere_and_gives_up_its_live_topics() -> None:
    world = World()
    for name, tickers in (("a", TICKERS), ("b", TICKERS[:1])):
        world.register(request(name, "s", *tickers))
    world.settle()
    world.suspend("a")
    assert world.followed == {f"TICKS:{TICKERS[0]}"}
    world.report_all()
    assert all(set(part.runs) == {"b"} for part in world.partitions)
    world.start()
    assert world.followed == {f"TICKS:{TICKERS[0]}"}
    world.register(request("a", "s", *TICKERS))
    world.settle()
    assert world.followed == {f"TICKS:{ticker}" for ticker in TICKERS}
    world.suspend("b")
    world.remove("b")
    world.remove("a")
    assert world.followed == set()


def test_a_suspension_is_published_once_it_is_stored_and_again_to_later_subscribers() -> None:
    world = World()
    world.register(request("a", callback_id="c"))
    world.register(request("b", callback_id="c"))
    world.settle()
    world.suspend("a", saves=0)
    # The relay died before it had stored anything; the pipeline's report is read again.
    assert not world.told
    world.suspend("a", saves=2)
    assert world.told == {("a", "TRIGGER:a"): 1, ("a", "RESPONSE:c"): 1}
    world.told.clear()
    world.suspend("a")
    assert not world.told
    world.take(ev.Subscribed(b"RESPONSE:c"))
    world.take(ev.Subscribed(b"TRIGGER:ab"))
    world.take(ev.Subscribed(b"TRIGGER:b"))
    assert world.told == {("a", "RESPONSE:c"): 1}
    world.register(request("a"))
    world.settle()
    world.told.clear()
    world.take(ev.Subscribed(b"TRIGGER:"))
    assert not world.told


def test_the_notice_names_the_registration_the_reason_and_the_newest_event() -> None:
    world = World()
    world.register(request("a"))
    world.settle()
    world.suspend("a")
    [notice] = world.state.suspensions.of("a")
    body = world.state.suspensions.body(notice, 7)
    assert body is not None
    error = decode_body(body, ON_TOPIC)
    assert error == cw.Error(
        code="TRIGGER_SUSPENDED",
        text="too many rows",
        request_id="a",
        topic="TRIGGER:a",
        newest_sequence=7,
        registered_at=world.entry("a").registration.registered_at,
    )
    world.remove("a")
    assert world.state.suspensions.body(notice, 7) is None


def test_a_trigger_is_listed_once_it_is_registered() -> None:
    world = World()
    world.register(request("a"))
    world.check()
    world.report(0)
    assert world.list() == {}
    starting = world.list(include_starting=True)["a"]
    assert (starting.state, starting.is_starting) == ("active", True)
    world.report(1)
    assert (world.list()["a"].state, world.list()["a"].is_starting) == ("active", False)
    world.register(request("b", "other"))
    world.check()
    world.suspend("b")
    assert (world.list()["b"].state, world.list()["b"].reason) == ("suspended", "too many rows")


STEPS = hyp.lists(
    hyp.tuples(
        hyp.sampled_from(
            [
                "register",
                "register",
                "check",
                "check",
                "remove",
                "report",
                "report",
                "suspend",
                "deliver",
                "time",
                "die",
            ]
        ),
        hyp.sampled_from(IDS),
        hyp.integers(0, 5),
        hyp.booleans(),
    ),
    max_size=50,
)


@given(STEPS)
@example([("register", "a", 1, False), ("check", "a", 0, False), ("suspend", "a", 0, False)])
@example([("register", "a", 1, False), ("check", "a", 1, False), ("suspend", "a", 1, True)])
@example(
    [("register", "a", 1, False), ("check", "a", 0, False), ("suspend", "a", 2, True), ("register", "a", 1, False)]
)
def test_after_any_run_the_pipeline_matches_the_table_and_every_client_was_answered(
    steps: list[tuple[str, str, int, bool]],
) -> None:
    world = World()
    for step, name, number, flag in steps:
        dies_after = number if flag else 99
        if step == "register":
            world.register(request(name, f"text {number % 3}", *TICKERS[: number % 3], callback_id="c" * (number % 2)))
        elif step == "check":
            world.check(is_sound=number != 5, is_joint=number % 2 == 1, dies_after=dies_after)
        elif step == "remove":
            world.remove(name, dies_after)
        elif step == "report":
            end = world.partitions[number % 3].end + 1
            world.report(number % 3, end if flag else None)
        elif step == "suspend" and name in world.table:
            world.suspend(name, number % 3, saves=dies_after)
        elif step == "deliver":
            world.deliver()
        elif step == "time":
            world.now += 10.0 * number
            world.take(ev.TimePassed(world.now))
        elif step == "die":
            world.start()
    world.settle()
    world.settle()
    assert all(world.answers[peer] == 1 for peer in world.asked)
    assert max(world.answers.values(), default=1) == 1
    kept = {name: world.entry(name).registration for name in world.table}
    assert not any(world.entry(name).is_leaving for name in world.table)
    running = {name: each for name, each in kept.items() if not world.entry(name).suspended_reason}
    for part in world.partitions:
        assert part.runs == {name: registration.version for name, registration in running.items()}
    tickers = {ticker for registration in running.values() for ticker in registration.tickers}
    assert world.followed == {f"TICKS:{ticker}" for ticker in tickers}
    assert world.joint <= set(kept)
    assert world.state.is_settled
    assert world.state.waiting == world.state.backlog == 0
    shown = {name: info.state for name, info in world.list().items()}
    assert shown == {name: "active" if name in running else "suspended" for name in kept}
    owed = {(name, f"TRIGGER:{name}") for name in kept if name not in running}
    owed |= {(name, f"RESPONSE:{kept[name].callback_id}") for name, _ in owed if kept[name].callback_id}
    # A client that subscribed earlier has received it by now, and one that subscribes now receives it once.
    assert owed <= set(world.told)
    world.told.clear()
    for subscription in (b"TRIGGER:", b"RESPONSE:c"):
        world.take(ev.Subscribed(subscription))
    assert world.told == Counter(owed)
    callbacks = {name: registration.callback_id for name, registration in kept.items() if registration.callback_id}
    assert world.state.callbacks == callbacks
