"""Which alert goes where and when, without a socket."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from alerts import destination as bounds
from alerts.alert import Alert, Delivery, Opened, Silence, Status
from alerts.commands import Command, Finish, Save, Send
from alerts.events import AlertsRead, Event, Finished, Restored, Saved, SendFailed, Sent, SilencesFound, TimePassed
from alerts.state import GIVE_UP_SECONDS, AlertsState
from core.settings_alerts import AlertsSettings

HOOK = {"url": "https://example.com/hook"}
PHONE = {"url": "json://example.com"}


def settings(**groups: object) -> AlertsSettings:
    return AlertsSettings.model_validate(groups)


def alert(number: int, trigger: str = "t", ticker: str = "A/B.X", *, kind: str = "event") -> Alert:
    return Alert(
        alert_id=f"{trigger}-{number}",
        kind=kind,
        time_ns=10**18 + number,
        title=f"{trigger} {number}",
        text="",
        trigger_id=trigger,
        ticker=ticker,
    )


class Run:
    """The state with everything saved immediately, and what it sent."""

    def __init__(self, own: AlertsSettings) -> None:
        self.state = AlertsState(own, jitter=lambda: 0.5)
        self.flying: list[Send] = []
        self.ended: list[tuple[str, Status, int]] = []
        self.noted: dict[str, Delivery] = {}
        self.opened: dict[str, Opened] = {}
        self.over: list[Silence] = []
        #: Ended messages that are not durable yet, while `is_away`.
        self.unwritten: list[str] = []
        self.is_away = False

    def handle(self, event: Event) -> list[Command]:
        commands = self.state.handle(event)
        for command in commands:
            match command:
                case Save(deliveries, opened, over):
                    self.opened |= {each.key: each for each in opened}
                    self.over += over
                    self.noted |= {each.key: each for each in deliveries}
                    at = event.at if isinstance(event, AlertsRead) else 0.0
                    self.handle(Saved(deliveries, at))
                case Send():
                    self.flying.append(command)
                case Finish(outcomes, changed, destination):
                    self.noted |= {each.key: each for each in changed}
                    for outcome in outcomes:
                        self.noted.pop(outcome.delivery.key, None)
                        self.ended.append((outcome.delivery.key, outcome.status, outcome.delivery.attempts))
                    self.unwritten += [destination] if destination else []
        if self.unwritten and not self.is_away:
            self.write(getattr(event, "at", 0.0))
        return commands

    def write(self, at: float) -> None:
        ended, self.unwritten = self.unwritten, []
        self.handle(Finished(ended, at))

    def read(self, *alerts: Alert, at: float = 0.0) -> None:
        self.handle(AlertsRead(alerts, at))

    def take(self) -> Send:
        return self.flying.pop(0)

    def sent(self, at: float) -> None:
        send = self.take()
        self.handle(Sent(send.destination, send.deliveries, at))

    def failed(self, at: float, retry_after: float | None = None) -> None:
        send = self.take()
        self.handle(SendFailed(send.destination, send.deliveries, "HTTP 500", at, "server_error", retry_after))

    def ids(self) -> list[str]:
        return [each.alert_id for send in self.flying for each in send.deliveries]


def test_alerts_of_one_trigger_go_out_one_after_the_other_and_others_do_not_wait() -> None:
    run = Run(settings(hook=HOOK))
    run.read(alert(1), alert(2), alert(1, "u"))
    assert run.ids() == ["t-1", "u-1"]
    run.failed(1.0)
    assert run.ids() == ["u-1"]
    run.sent(1.0)
    assert run.ids() == []
    run.handle(TimePassed(2.0))
    assert run.ids() == ["t-1"]
    run.sent(2.5)
    assert run.ids() == ["t-2"]
    run.sent(3.0)
    assert run.ended == [
        ("hook:u-1", Status.DELIVERED, 1),
        ("hook:t-1", Status.DELIVERED, 2),
        ("hook:t-2", Status.DELIVERED, 1),
    ]
    assert run.state.waiting == 0
    assert not run.noted


def test_pauses_double_up_to_a_minute_and_end_after_a_day() -> None:
    run = Run(settings(hook=HOOK))
    run.read(alert(1), at=0.0)
    at, pauses = 0.0, []
    while not run.ended:
        run.failed(at)
        due = run.state.due(at)
        if due is not None:
            pauses.append(due - at)
            at = due
            run.handle(TimePassed(at))
    assert pauses[:8] == [1, 2, 4, 8, 16, 32, 60, 60]
    assert set(pauses[6:]) == {60}
    ((key, status, attempts),) = run.ended
    assert (key, status, attempts) == ("hook:t-1", Status.ABANDONED, len(pauses) + 1)
    assert GIVE_UP_SECONDS <= at < GIVE_UP_SECONDS + 60


def test_retry_after_closes_the_whole_destination() -> None:
    run = Run(settings(hook=HOOK))
    run.read(alert(1))
    run.failed(1.0, retry_after=300)
    run.read(alert(1, "u"), at=2.0)
    assert run.ids() == []
    assert run.state.due(2.0) == 301.0
    run.handle(TimePassed(301.0))
    assert sorted(run.ids()) == ["t-1", "u-1"]


def test_a_slow_destination_does_not_delay_another() -> None:
    run = Run(settings(slow=HOOK, fast=HOOK))
    run.read(*(alert(number, f"t{number}") for number in range(100)))
    for send in [each for each in run.flying if each.destination == "fast"]:
        run.flying.remove(send)
        run.handle(Sent("fast", send.deliveries, 1.0))
    while fast := [each for each in run.flying if each.destination == "fast"]:
        run.flying.remove(fast[0])
        run.handle(Sent("fast", fast[0].deliveries, 1.0))
    assert Counter(key.partition(":")[0] for key, _, _ in run.ended) == {"fast": 100}
    assert len([each for each in run.flying if each.destination == "slow"]) == bounds.MAX_IN_FLIGHT


@pytest.mark.parametrize(("own", "limit"), [(HOOK, bounds.MAX_IN_FLIGHT), (PHONE, 1)])
def test_an_ended_message_takes_a_place_until_its_outcome_is_durable(own: dict[str, str], limit: int) -> None:
    run, answered = Run(settings(one=own)), 0
    run.is_away = True
    run.read(*(alert(number, f"t{number}") for number in range(3 * limit)))
    while run.flying:
        run.sent(1.0)
        answered += 1
    assert answered == limit
    assert run.state.due(1.0) is None
    run.write(2.0)
    assert len(run.flying) == limit


def test_a_webhook_above_its_rate_is_delayed() -> None:
    run = Run(settings(hook={**HOOK, "rate_per_minute": 2}))
    run.read(*(alert(number, f"t{number}") for number in range(3)))
    assert run.ids() == ["t0-0", "t1-1"]
    assert run.state.due(0.0) == pytest.approx(30.0)
    run.handle(TimePassed(30.0))
    assert run.ids() == ["t0-0", "t1-1", "t2-2"]


def test_a_service_above_its_rate_gets_one_digest() -> None:
    run = Run(settings(phone={**PHONE, "rate_per_minute": 1}))
    run.read(alert(1))
    run.sent(1.0)
    run.read(alert(2), alert(3), alert(1, "u"), at=2.0)
    assert not run.flying
    run.handle(TimePassed(61.0))
    assert [len(send.deliveries) for send in run.flying] == [3]
    run.failed(62.0)
    run.read(alert(4), at=63.0)
    run.handle(TimePassed(122.0))
    assert len(run.ids()) == 4
    run.sent(123.0)
    assert {key: attempts for key, _, attempts in run.ended} == {
        "phone:t-1": 1,
        "phone:t-2": 2,
        "phone:t-3": 2,
        "phone:u-1": 2,
        "phone:t-4": 1,
    }


def test_routes_choose_by_trigger_ticker_and_kind() -> None:
    own = settings(
        one=HOOK,
        two=HOOK,
        route=[
            {"triggers": "dip-*", "tickers": "BTC/*", "to": "one"},
            {"kind": ["trigger_suspended"], "to": ["two", "one"]},
        ],
    )
    run = Run(own)
    run.read(
        alert(1, "dip-a", "BTC/USDT.X"),
        alert(2, "dip-a", "ETH/USDT.X"),
        alert(3, "rise", "BTC/USDT.X"),
        alert(4, "rise", "", kind="trigger_suspended"),
    )
    assert sorted((send.destination, send.deliveries[0].alert_id) for send in run.flying) == [
        ("one", "dip-a-1"),
        ("one", "rise-4"),
        ("two", "rise-4"),
    ]


def test_without_routes_every_destination_gets_trigger_events_alone() -> None:
    run = Run(settings(one=HOOK, two=HOOK))
    run.read(alert(1), alert(2, "u", kind="gap"))
    assert sorted(send.destination for send in run.flying) == ["one", "two"]


def test_silences_cooldowns_and_quiet_hours_suppress() -> None:
    noon = 1_704_110_400.0
    own = settings(
        loud=HOOK,
        calm={**HOOK, "cooldown_seconds": 60},
        night={**HOOK, "quiet": "13:30-12:30", "time_zone": "Europe/Berlin"},
    )
    run = Run(own)
    run.read(alert(1), at=noon)
    assert sorted(send.destination for send in run.flying) == ["calm", "loud", "night"]
    run.flying.clear()
    run.read(alert(1, "u", "C/D.X"), alert(2, "u", "C/D.X"), at=noon + 3_600)
    assert sorted(send.destination for send in run.flying) == ["calm", "loud"]
    assert run.state.status()["calm"]["suppressed"] == 1
    assert run.state.status()["night"]["suppressed"] == 2
    run.handle(SilencesFound([Silence("s", "v*", "*", noon + 7_300)]))
    run.flying.clear()
    run.read(alert(1, "v1"), at=noon + 7_299)
    assert not run.flying
    run.read(alert(2, "v1"), at=noon + 7_300)
    assert "v1-2" in run.ids()


def test_an_alert_that_waits_is_not_taken_twice() -> None:
    run = Run(settings(hook=HOOK))
    run.read(alert(1))
    run.read(alert(1))
    run.sent(1.0)
    assert not run.flying
    assert len(run.ended) == 1


def test_at_the_bound_the_oldest_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounds, "MAX_WAITING", 3)
    run = Run(settings(hook=HOOK))
    run.read(*(alert(number) for number in range(5)))

    assert [key for key, _, _ in run.ended] == ["hook:t-0", "hook:t-1"]
    assert run.state.waiting == 3


def test_restored_deliveries_continue_in_order() -> None:
    first = Run(settings(hook=HOOK))
    first.read(alert(1), alert(2), alert(3))
    first.failed(5.0)
    kept = [*first.noted.values()]
    second = Run(settings(hook=HOOK))
    second.handle(Restored(kept[::-1], 6.0))
    second.read(alert(4), at=7.0)
    for at in range(10, 14):
        second.sent(at)
    assert second.ended == [
        ("hook:t-1", Status.DELIVERED, 2),
        ("hook:t-2", Status.DELIVERED, 1),
        ("hook:t-3", Status.DELIVERED, 1),
        ("hook:t-4", Status.DELIVERED, 1),
    ]


def test_deliveries_to_a_destination_that_is_gone_are_given_up() -> None:
    first = Run(settings(hook=HOOK))
    first.read(alert(1))
    (kept,) = first.noted.values()
    second = Run(settings(other=HOOK))
    second.handle(Restored([replace(kept, order=9)], 6.0))
    assert second.ended == [("hook:t-1", Status.ABANDONED, 0)]


@given(st.data())
def test_every_alert_ends_once_and_in_order(data: st.DataObject) -> None:
    """Any order of answers, failures, pauses and restarts: at least once, in order, one outcome each."""
    own = settings(hook=HOOK, phone={**PHONE, "rate_per_minute": 30})
    run, at, number = Run(own), 0.0, 0
    seen: dict[tuple[str, str], list[str]] = {}
    for step in data.draw(st.lists(st.sampled_from(["read", "sent", "failed", "wait", "restart"]), max_size=40)):
        at += 1.0
        if step == "read":
            number += 1
            run.read(alert(number, f"t{number % 3}"), at=at)
        elif step == "wait":
            at += 60.0
            run.handle(TimePassed(at))
        elif step == "restart":
            kept, ended = [*run.noted.values()], run.ended
            run = Run(own)
            run.ended, run.noted = ended, {each.key: each for each in kept}
            run.handle(Restored(kept, at))
        elif run.flying:
            run.flying.insert(0, run.flying.pop(data.draw(st.integers(0, len(run.flying) - 1))))
            if step == "failed":
                run.failed(at)
            else:
                _note(seen, run.flying[0])
                run.sent(at)
    for _ in range(1_000):
        if not run.state.waiting:
            break
        while run.flying:
            _note(seen, run.flying[0])
            run.sent(at)
        at += 60.0
        run.handle(TimePassed(at))
    assert run.state.waiting == 0
    assert sorted(key for key, _, _ in run.ended) == sorted(
        f"{name}:t{each % 3}-{each}" for name in ("hook", "phone") for each in range(1, number + 1)
    )
    for ids in seen.values():
        numbers = [int(each.partition("-")[2]) for each in ids]
        assert numbers == sorted(numbers)


def _note(seen: dict[tuple[str, str], list[str]], send: Send) -> None:
    for each in send.deliveries:
        seen.setdefault((send.destination, each.trigger_id), []).append(each.alert_id)


def dip(number: int, ticker: str = "A/B.X") -> Alert:
    return replace(alert(number, "dip", ticker), resolved_by="back")


def titles(run: Run) -> list[tuple[str, str]]:
    """Send everything that is due; returns (destination, title) in order."""
    found = []
    while run.flying:
        found += [(run.flying[0].destination, each.title) for each in run.flying[0].deliveries]
        run.sent(1.0)
    return found


def test_the_resolver_notifies_once_the_destinations_that_got_the_alert() -> None:
    quiet_at_zero = HOOK | {"quiet": "23:00-01:00"}
    run = Run(settings(hook=HOOK, phone=PHONE, calm=quiet_at_zero))
    back = replace(alert(1, "back"), to=("none",))
    run.read(back)
    assert titles(run) == []
    run.read(dip(1), dip(2))
    run.read(back)
    assert sorted(titles(run)) == [
        (name, title) for name in ("hook", "phone") for title in ("dip 1", "dip 2", "resolved: dip 2")
    ]
    run.read(replace(alert(2, "back"), to=("none",)), replace(alert(3, "back", "C/D.X"), to=("none",)))
    assert titles(run) == []
    run.read(dip(3))
    run.read(replace(alert(4, "back"), to=("none",)))
    assert titles(run)[-1][1] == "resolved: dip 3"


def test_an_event_that_is_read_again_resolves_the_same_alert() -> None:
    first = Run(settings(hook=HOOK))
    first.read(dip(1))
    first.read(alert(9, "back"))
    assert [title for _, title in titles(first)] == ["dip 1", "resolved: dip 1"]
    # A kill before the position in the log was durable.
    second = Run(settings(hook=HOOK))
    second.handle(Restored([], 2.0, [*first.opened.values()]))
    second.read(alert(9, "back"))
    assert second.ids() == ["resolved:dip-1"]
    assert titles(second) == [("hook", "resolved: dip 1")]
    second.read(alert(10, "back"))
    assert titles(second) == [("hook", "back 10")]


def test_a_resolve_message_is_sent_despite_a_cooldown() -> None:
    run = Run(settings(hook=HOOK | {"cooldown_seconds": 600}, phone=PHONE))
    run.read(dip(1), at=0.0)
    run.read(dip(2), at=1.0)
    run.read(alert(9, "back"), at=2.0)
    assert [title for name, title in titles(run) if name == "hook"] == ["dip 1", "resolved: dip 2"]


def test_opened_alerts_survive_as_they_are() -> None:
    opened = Opened(
        alert_id="dip-1",
        trigger_id="dip",
        ticker="A/B.X",
        title="dip 1",
        resolved_by="back",
        destinations=("hook", "phone"),
    )
    assert Opened.from_bytes(opened.to_bytes()) == opened


def test_a_silence_ends_with_an_event_of_its_trigger() -> None:
    run = Run(settings(hook=HOOK))
    silence = Silence("dip *", "dip", "A/*", 1e9, until_trigger="back")
    run.handle(SilencesFound([silence]))
    run.read(alert(1, "dip"), alert(1, "back", "C/D.X"), alert(2, "dip"))
    assert titles(run) == [("hook", "back 1")]
    run.read(alert(2, "back"), alert(3, "dip"))
    assert [title for _, title in titles(run)] == ["back 2", "dip 3"]
    assert run.over == [silence]
    # Found once more before it was removed; then silenced again.
    run.handle(SilencesFound([silence]))
    run.read(alert(4, "dip"))
    assert [title for _, title in titles(run)] == ["dip 4"]
    run.handle(SilencesFound([replace(silence, until=2e9)]))
    run.read(alert(5, "dip"))
    assert titles(run) == []
