"""Decisions of the supervisor, without a process."""

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from candlewright_platform.supervisor.state import (
    DEAD_SECONDS,
    MAX_BACKOFF_SECONDS,
    QUIET_SECONDS,
    REFUSED,
    SICK_SECONDS,
    TURN_LOOK_SECONDS,
    TURN_SECONDS,
    UNREADY_STOP_SECONDS,
    AllReady,
    AllStandBy,
    BecameReady,
    BecameStandby,
    BeganToWait,
    Begun,
    BusAsked,
    BusChanged,
    Command,
    Exited,
    Finish,
    Kill,
    PartPlan,
    Probed,
    Refused,
    Restarting,
    Start,
    Started,
    StopAsked,
    Supervision,
    Terminate,
    TimePassed,
)

PLANS = (PartPlan("redis", 0), PartPlan("broker", 2), PartPlan("spark", 2, stop_seconds=20.0), PartPlan("ingestor", 3))


def ready(part: str, at: float, *, is_ready: bool = True, problems: tuple[str, ...] = ()) -> Probed:
    return Probed(part=part, answered=True, is_ready=is_ready, problems=problems, at=at)


def waiting(part: str, at: float) -> Probed:
    return Probed(
        part=part,
        answered=True,
        is_ready=False,
        problems=("the catalog does not answer",),
        at=at,
        waits_for="the catalog",
    )


def silent(part: str, at: float) -> Probed:
    return Probed(part=part, answered=False, is_ready=False, problems=(), at=at)


def running() -> Supervision:
    """All parts started at 0 and ready at 1."""
    supervision = Supervision(plans=PLANS)
    supervision.handle(Begun(0.0))
    for plan in PLANS:
        supervision.handle(Started(plan.name, 0.0))
        supervision.handle(ready(plan.name, 1.0))
    return supervision


def starts(commands: list[Command]) -> list[str]:
    return [command.part for command in commands if isinstance(command, Start)]


def test_only_the_bus_starts_first() -> None:
    assert Supervision(plans=PLANS).handle(Begun(0.0)) == [Start("redis")]


def test_the_others_start_when_the_bus_is_ready() -> None:
    supervision = Supervision(plans=PLANS)
    supervision.handle(Begun(0.0))
    supervision.handle(Started("redis", 0.0))
    assert starts(supervision.handle(ready("redis", 0.5, is_ready=False))) == []
    assert starts(supervision.handle(ready("redis", 1.0))) == ["broker", "spark", "ingestor"]


def test_only_ingestors_and_doors_wait_for_the_sandbox() -> None:
    supervision = Supervision(plans=(*PLANS, PartPlan("sandbox", 1)))
    assert starts(supervision.handle(Begun(0.0))) == ["redis", "sandbox"]
    supervision.handle(Started("redis", 0.0))
    supervision.handle(Started("sandbox", 0.0))
    assert starts(supervision.handle(ready("redis", 1.0))) == ["broker", "spark"]
    assert starts(supervision.handle(ready("sandbox", 2.0))) == ["ingestor"]


FIRST = (PartPlan("redis", 0), PartPlan("broker", 2), PartPlan("spark", 2, starts_first=True), PartPlan("relay", 2))


def first_started(*names: str) -> Supervision:
    supervision = Supervision(plans=FIRST)
    supervision.handle(Begun(0.0))
    for name in names:
        supervision.handle(Started(name, 0.0))
    return supervision


def test_a_part_that_starts_first_does_not_wait_for_the_bus() -> None:
    assert Supervision(plans=FIRST).handle(Begun(0.0)) == [Start("spark"), Start("redis")]


def test_beside_a_part_that_starts_first_the_others_start_one_by_one() -> None:
    supervision = first_started("spark", "redis")
    assert starts(supervision.handle(ready("redis", 0.1))) == ["broker"]
    supervision.handle(Started("broker", 0.1))
    assert starts(supervision.handle(ready("broker", 0.5, is_ready=False))) == []
    assert supervision.next_deadline() == 0.5 + TURN_LOOK_SECONDS
    assert starts(supervision.handle(ready("broker", 1.0))) == ["relay"]


def test_a_part_that_never_becomes_ready_holds_no_other_back_for_long() -> None:
    supervision = first_started("spark", "redis", "broker")
    assert starts(supervision.handle(ready("redis", 0.1))) == []
    assert starts(supervision.handle(TimePassed(TURN_SECONDS - 0.1))) == []
    assert starts(supervision.handle(TimePassed(TURN_SECONDS + 0.1))) == ["relay"]


def test_the_others_start_at_once_when_the_first_is_ready() -> None:
    supervision = first_started("spark", "redis")
    supervision.handle(ready("spark", 0.1))
    assert starts(supervision.handle(ready("redis", 0.2))) == ["broker", "relay"]


def test_parts_without_their_own_bus_start_immediately() -> None:
    assert starts(Supervision(plans=[PartPlan("relay", 2)]).handle(Begun(0.0))) == ["relay"]


def test_ready_is_printed_once_all_parts_are_ready() -> None:
    supervision = Supervision(plans=PLANS)
    supervision.handle(Begun(0.0))
    said: list[Command] = []
    for at in (1.0, 2.0):
        for plan in PLANS:
            supervision.handle(Started(plan.name, at))
            said += supervision.handle(ready(plan.name, at))
    assert said.count(AllReady()) == 1
    assert said.index(AllReady()) > said.index(BecameReady("ingestor"))


def test_a_dead_part_starts_again_after_a_short_pause() -> None:
    supervision = running()
    assert supervision.handle(Exited("broker", -9, 5.0)) == [Restarting("broker", -9, 0.2)]
    assert not supervision.is_ready
    assert supervision.next_deadline() == 5.2
    assert supervision.handle(TimePassed(5.1)) == []
    assert supervision.handle(TimePassed(5.2)) == [Start("broker")]


def test_a_part_that_refuses_its_settings_is_not_started_again() -> None:
    supervision = Supervision(plans=PLANS)
    supervision.handle(Begun(0.0))
    for name in ("redis", "broker"):
        supervision.handle(Started(name, 1.0))
    commands = supervision.handle(Exited("broker", REFUSED, 2.0))
    assert commands == [Refused("broker"), Terminate("redis")]
    assert supervision.is_refused
    assert supervision.handle(Exited("redis", 0, 3.0)) == [Finish()]


def test_a_part_that_was_ready_is_restarted_after_any_exit_code() -> None:
    supervision = running()
    assert supervision.handle(Exited("broker", REFUSED, 5.0)) == [Restarting("broker", REFUSED, 0.2)]
    assert not supervision.is_refused


def test_pauses_double_up_to_a_limit() -> None:
    supervision = running()
    pauses = []
    at = 5.0
    for _ in range(9):
        (restarting,) = supervision.handle(Exited("broker", 1, at))
        assert isinstance(restarting, Restarting)
        pauses.append(restarting.pause_seconds)
        at += restarting.pause_seconds
        supervision.handle(TimePassed(at))
        supervision.handle(Started("broker", at))
    assert pauses[:4] == [0.2, 0.4, 0.8, 1.6]
    assert pauses[-1] == MAX_BACKOFF_SECONDS


def test_a_quiet_minute_forgets_earlier_failures() -> None:
    supervision = running()
    for at in (2.0, 4.0, 6.0):
        supervision.handle(Exited("broker", 1, at))
        supervision.handle(Started("broker", at + 1))
    (restarting,) = supervision.handle(Exited("broker", 1, 7.0 + QUIET_SECONDS))
    assert restarting == Restarting("broker", 1, 0.2)


def test_a_bus_that_died_later_does_not_hold_back_others() -> None:
    supervision = running()
    supervision.handle(Exited("redis", -9, 5.0))
    supervision.handle(Exited("broker", 1, 5.0))
    assert sorted(starts(supervision.handle(TimePassed(5.3)))) == ["broker", "redis"]


def test_a_part_that_stops_answering_is_killed() -> None:
    supervision = running()
    assert supervision.handle(silent("broker", DEAD_SECONDS)) == []
    (kill,) = supervision.handle(silent("broker", 1.0 + DEAD_SECONDS))
    assert isinstance(kill, Kill)
    assert kill.part == "broker"


def test_an_answer_in_between_prevents_the_kill() -> None:
    supervision = running()
    supervision.handle(ready("broker", 20.0))
    assert supervision.handle(silent("broker", 2.0 + DEAD_SECONDS)) == []


def test_a_slow_starter_has_its_own_patience() -> None:
    supervision = Supervision(plans=[PartPlan("spark", 2, start_seconds=300.0)])
    supervision.handle(Begun(0.0))
    supervision.handle(Started("spark", 0.0))
    assert supervision.handle(silent("spark", 299.0)) == []
    assert [type(command) for command in supervision.handle(silent("spark", 300.0))] == [Kill]


def test_a_part_that_was_killed_before_it_answered_gets_twice_as_long() -> None:
    """On a machine too busy for a start within a minute, each attempt used to be killed, which made it no quieter."""
    supervision = Supervision(plans=[PartPlan("ingestor", 3)])
    supervision.handle(Begun(0.0))
    at = 0.0
    for patience in (60.0, 120.0, 240.0):
        supervision.handle(Started("ingestor", at))
        assert supervision.handle(silent("ingestor", at + patience - 1)) == []
        at += patience
        (kill,) = supervision.handle(silent("ingestor", at))
        assert isinstance(kill, Kill) and kill.reason == f"its status page has not answered for {patience:g} s"
        supervision.handle(Exited("ingestor", -9, at))
    supervision.handle(Started("ingestor", at))
    supervision.handle(ready("ingestor", at + 400))
    supervision.handle(Exited("ingestor", -9, at + 400))
    supervision.handle(Started("ingestor", at + 400))
    assert [type(command) for command in supervision.handle(silent("ingestor", at + 460))] == [Kill]


def test_a_lasting_problem_is_cured_by_a_restart() -> None:
    supervision = running()
    assert supervision.handle(ready("broker", SICK_SECONDS, problems=("loop stands",))) == []
    (kill,) = supervision.handle(ready("broker", 1.0 + SICK_SECONDS, problems=("loop stands",)))
    assert isinstance(kill, Kill)
    assert "loop stands" in kill.reason


def test_stopping_goes_from_the_last_stage_to_the_first() -> None:
    supervision = running()
    assert supervision.handle(StopAsked(10.0)) == [Terminate("ingestor")]
    assert supervision.handle(Exited("ingestor", 0, 11.0)) == [Terminate("broker"), Terminate("spark")]
    assert supervision.handle(Exited("broker", 0, 12.0)) == []
    assert supervision.handle(Exited("spark", 0, 13.0)) == [Terminate("redis")]
    assert supervision.handle(Exited("redis", 0, 14.0)) == [Finish()]


def test_a_part_that_does_not_stop_in_time_is_killed() -> None:
    supervision = running()
    supervision.handle(StopAsked(10.0))
    assert supervision.handle(TimePassed(19.9)) == []
    (kill,) = supervision.handle(TimePassed(20.0))
    assert isinstance(kill, Kill)


def test_a_part_that_is_still_starting_is_killed_soon() -> None:
    supervision = Supervision(plans=[PartPlan("spark", 2, stop_seconds=20.0)])
    supervision.handle(Begun(0.0))
    supervision.handle(Started("spark", 0.0))
    supervision.handle(StopAsked(10.0))
    assert supervision.handle(TimePassed(10.0 + UNREADY_STOP_SECONDS - 0.1)) == []
    (kill,) = supervision.handle(TimePassed(10.0 + UNREADY_STOP_SECONDS))
    assert isinstance(kill, Kill)


def test_stopping_while_nothing_runs_finishes_at_once() -> None:
    assert Supervision(plans=PLANS).handle(StopAsked(0.0)) == [Finish()]


def test_nothing_starts_after_a_stop() -> None:
    supervision = running()
    supervision.handle(Exited("broker", 1, 5.0))
    supervision.handle(StopAsked(5.1))
    assert starts(supervision.handle(TimePassed(100.0))) == []


@given(
    st.sampled_from([PLANS, FIRST]),
    st.lists(st.tuples(st.sampled_from(["exit", "ready", "silent", "pass", "stop"]), st.integers(0, 3)), max_size=60),
)
def test_every_stop_ends_and_no_living_part_is_started(
    plans: Sequence[PartPlan], script: list[tuple[str, int]]
) -> None:
    supervision = Supervision(plans=plans)
    alive: set[str] = set()
    finished = 0

    def obey(commands: list[Command], at: float) -> None:
        nonlocal finished
        for command in commands:
            match command:
                case Start(part):
                    assert part not in alive
                    assert not supervision.is_stopping
                    alive.add(part)
                    supervision.handle(Started(part, at))
                case Finish():
                    finished += 1
                    assert not alive

    at = 0.0
    obey(supervision.handle(Begun(at)), at)
    for what, index in [*script, ("stop", 0)]:
        at, plan = at + 7.0, plans[index]
        match what:
            case "exit" if plan.name in alive:
                alive.discard(plan.name)
                obey(supervision.handle(Exited(plan.name, 1, at)), at)
            case "ready":
                obey(supervision.handle(ready(plan.name, at)), at)
            case "silent":
                obey(supervision.handle(silent(plan.name, at)), at)
            case "pass":
                obey(supervision.handle(TimePassed(at)), at)
            case "stop":
                obey(supervision.handle(StopAsked(at)), at)
    for name in sorted(alive):
        alive.discard(name)
        obey(supervision.handle(Exited(name, 0, at)), at)
    assert finished == 1


def standby(part: str, at: float) -> Probed:
    return Probed(part=part, answered=True, is_ready=False, problems=(), at=at, is_standby=True)


def test_a_standby_is_announced_as_one_and_as_ready_once_it_has_taken_over() -> None:
    supervision = Supervision(plans=PLANS)
    supervision.handle(Begun(0.0))
    for plan in PLANS:
        supervision.handle(Started(plan.name, 0.0))
    for name in ("redis", "spark", "ingestor"):
        supervision.handle(ready(name, 1.0))
    assert supervision.handle(standby("broker", 2.0)) == [BecameStandby("broker"), AllStandBy()]
    assert supervision.handle(standby("broker", 3.0)) == []
    assert not supervision.is_ready
    assert supervision.handle(standby("broker", 2.0 + 2 * SICK_SECONDS)) == []
    assert supervision.handle(ready("broker", 2.0 + 2 * SICK_SECONDS)) == [BecameReady("broker"), AllReady()]


def test_a_part_that_waits_for_a_service_is_not_started_again() -> None:
    supervision = running()
    assert supervision.handle(waiting("spark", 2.0)) == [BeganToWait("spark", "the catalog")]
    for hour in range(1, 5):
        assert supervision.handle(waiting("spark", 3_600.0 * hour)) == []
    # Its grace time as an unhealthy part begins when the service is back.
    back = 4 * 3_600.0
    assert supervision.handle(ready("spark", back + SICK_SECONDS - 1, is_ready=False, problems=("it hangs",))) == []
    (kill,) = supervision.handle(ready("spark", back + SICK_SECONDS, is_ready=False, problems=("it hangs",)))
    assert isinstance(kill, Kill)


def test_a_part_that_was_never_ready_may_wait_too() -> None:
    supervision = Supervision(plans=PLANS)
    supervision.handle(Begun(0.0))
    supervision.handle(Started("spark", 0.0))
    supervision.handle(waiting("spark", 1.0))
    assert supervision.handle(waiting("spark", 10 * PLANS[2].start_seconds)) == []


def test_a_part_that_a_restart_did_not_fix_is_left_alone_longer_each_time() -> None:
    supervision, at, kills = running(), 1.0, []
    for _ in range(3):
        since = at
        while not isinstance(
            next(iter(supervision.handle(ready("spark", at, is_ready=False, problems=("sick",)))), None), Kill
        ):
            at += 10.0
        kills.append(at - since)
        supervision.handle(Exited("spark", -9, at))
        supervision.handle(Started("spark", at))
        supervision.handle(ready("spark", at, is_ready=True))
    assert kills == [SICK_SECONDS, 2 * SICK_SECONDS, 4 * SICK_SECONDS]
    supervision.handle(ready("spark", at + SICK_SECONDS))
    at += SICK_SECONDS
    assert supervision.handle(ready("spark", at + SICK_SECONDS - 1, is_ready=False, problems=("sick",))) == []
    (kill,) = supervision.handle(ready("spark", at + SICK_SECONDS, is_ready=False, problems=("sick",)))
    assert isinstance(kill, Kill)


def test_no_part_is_killed_for_a_bus_that_does_not_serve_it() -> None:
    """After three minutes, each part used to be restarted in turn, although a restart could not help."""
    supervision = running()
    assert supervision.handle(BusAsked("", 1.5)) == []
    assert supervision.handle(BusAsked("Redis is down", 2.0)) == [BusChanged("Redis is down")]
    back = 2.0 + 3 * SICK_SECONDS
    for at in range(3, round(back)):
        assert supervision.handle(ready("broker", float(at), problems=("the bus cannot be read",))) == []
        assert supervision.handle(BusAsked("Redis is down", float(at))) == []
    assert supervision.handle(BusAsked("", back)) == [BusChanged("")]
    last = back - 1.0
    assert supervision.handle(ready("broker", last + SICK_SECONDS - 1, problems=("it hangs",))) == []
    (kill,) = supervision.handle(ready("broker", last + SICK_SECONDS, problems=("it hangs",)))
    assert isinstance(kill, Kill) and kill.part == "broker"
