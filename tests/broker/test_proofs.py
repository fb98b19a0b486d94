"""Candles that the table proves are not fetched again: questions to the driver, with and without answers."""

from collections.abc import Sequence

import pytest

from broker.metrics import NOTES, UNASKED
from broker.requests import asking, lifecycle
from bus import topics
from bus.api import Record
from bus.dead_letters import kept
from candlewright.wire import candlewright_pb2 as cw
from candlewright.wire import ingestor_pb2 as ing
from protobuf import records_pb2 as rec
from tests.broker.conftest import Stage
from tests.broker.harness import MINUTE, START, RunningBroker, eventually, minutes
from venues import sound

PAGE = 10
OK = ing.HistoryReadyNotification.OK
Part = tuple[int, int]


class Prover:
    """The driver's end of the two topics."""

    def __init__(self, stage: Stage) -> None:
        self._bus = stage.bus
        self._read = 0
        self.come()

    def come(self) -> None:
        self._bus.put(topics.TABLE_PROVER, {topics.PROVER_KEY: b""})

    def go(self) -> None:
        self._bus.delete(topics.TABLE_PROVER, [topics.PROVER_KEY])

    def question(self) -> rec.ProofQuestion:
        self._bus.create_topic(topics.PROOF_QUESTIONS, 1)
        assert self._bus.wait({(topics.PROOF_QUESTIONS, 0): self._read}, 20.0)
        record = self._bus.read(topics.PROOF_QUESTIONS, 0, self._read)[0]
        self._read = record.offset + 1
        question = rec.ProofQuestion.FromString(record.value)
        assert sound.problem_with_question(question) == ""
        return question

    def answer(self, question: rec.ProofQuestion, *parts: Part, holes: Sequence[int] = ()) -> None:
        """Parts are in minutes since START, as are `holes`."""
        proof = rec.Proof(request_id=question.request_id)
        for start, end in parts:
            own = [hole for hole in holes if start <= hole < end]
            part = proof.ranges.add(start_time=START + start * MINUTE, end_time=START + end * MINUTE)
            part.expected, part.rows = end - start, end - start - len(own)
            for hole in own:
                part.holes.add(start_time=START + hole * MINUTE, end_time=START + (hole + 1) * MINUTE)
        self.say(proof.SerializeToString())

    def say(self, value: bytes) -> None:
        self._bus.publish(topics.PROOFS, [Record(value, partition=0)])


def asked(job: ing.DataRequest) -> Part:
    """The range of a job in minutes since START."""
    return (job.historical.start_time - START) // MINUTE, (job.historical.end_time - START) // MINUTE


def with_prover(stage: Stage, **settings: float) -> tuple[RunningBroker, Prover]:
    stage.venue("TEST", PAGE)
    prover = Prover(stage)
    return stage.broker(**{"proof_seconds": 60.0, **settings}), prover


def test_a_proven_request_ends_without_an_ingestor(stage: Stage) -> None:
    _, prover = with_prover(stage)
    name = stage.client.submit(30)
    question = prover.question()
    assert (question.ticker, question.period_seconds, question.HasField("limit")) == ("BTC/USDT.TEST", 60, False)
    assert [(r.start_time, r.end_time) for r in question.ranges] == [(START, START + 30 * MINUTE)]
    prover.answer(question, (0, 30), holes=(4,))
    end = stage.client.end(name)
    assert (end.status, end.rows, end.expected) == (OK, 29, 30)
    assert [(hole.start_time - START) // MINUTE for hole in end.holes] == [4]
    (piece,) = stage.client.pieces(name)
    assert (piece.is_proven, piece.rows, len(piece.spans)) == (True, 29, 0)
    assert sound.problem_with_piece(piece) == ""


def test_only_the_rest_is_fetched(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    peer = stage.peer(broker)
    name = stage.client.submit(50)
    prover.answer(prover.question(), (10, 30))
    peer.offer(slots=3)
    jobs = [peer.job(), peer.job()]
    assert sorted(map(asked, jobs)) == [(0, 10), (30, 50)]
    for job in jobs:
        start, end = asked(job)
        peer.answer(job, minutes(START + start * MINUTE, START + end * MINUTE))
    end = stage.client.end(name)
    assert (end.status, end.rows, end.expected, len(end.holes)) == (OK, 50, 50, 0)
    assert len({piece.piece for piece in stage.client.pieces(name)}) == 3


def test_nothing_is_dispatched_before_the_answer(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    peer = stage.peer(broker)
    peer.offer()
    stage.client.submit(10)
    question = prover.question()
    assert peer.receive(0.5) is None
    prover.answer(question)
    assert asked(peer.job()) == (0, 10)


def test_without_an_answer_everything_is_fetched_and_counted(stage: Stage) -> None:
    before = NOTES["proof_unanswered"]._value.get()
    broker, prover = with_prover(stage, proof_seconds=0.3)
    peer = stage.peer(broker)
    peer.offer()
    stage.client.submit(10)
    question = prover.question()
    job = peer.job()
    assert asked(job) == (0, 10)
    assert NOTES["proof_unanswered"]._value.get() == before + 1
    prover.answer(question, (0, 10))
    peer.answer(job, minutes(START, START + 10 * MINUTE))
    assert stage.client.end(question.request_id).rows == 10


def test_without_a_driver_nothing_is_asked(stage: Stage) -> None:
    before = UNASKED._value.get()
    stage.venue("TEST", PAGE)
    broker = stage.broker(proof_seconds=60.0)
    peer = stage.peer(broker)
    peer.offer()
    stage.client.submit(10)
    assert asked(peer.job()) == (0, 10)
    eventually(lambda: UNASKED._value.get() == before + 1)


def test_a_new_driver_is_queried_and_one_that_left_is_not(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    peer = stage.peer(broker)
    prover.go()
    eventually(lambda: not broker.server.state._board.has_prover)
    peer.offer()
    stage.client.submit(10)
    peer.job()
    prover.come()
    eventually(lambda: broker.server.state._board.has_prover)
    name = stage.client.submit(10)
    prover.answer(prover.question(), (0, 10))
    assert stage.client.end(name).rows == 10


def test_a_refresh_asks_the_exchange(stage: Stage) -> None:
    broker, _ = with_prover(stage)
    peer = stage.peer(broker)
    peer.offer()
    historical = ing.SubmitHistoricalRequest(
        request_id="again", ticker="BTC/USDT.TEST", start_time=START, end_time=START + 10 * MINUTE, period_seconds=60
    )
    stage.client._put(rec.Request(historical=historical, refresh=True), "again", 600.0)
    assert asked(peer.job()) == (0, 10)
    assert stage.bus.state(topics.PROOF_QUESTIONS)[0].end == 0


def test_a_limit_takes_proven_candles_first_and_fetches_the_rest(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    peer = stage.peer(broker)
    peer.offer()
    name = stage.client.submit(100, limit=12)
    question = prover.question()
    assert question.limit == 12
    # Candles after a gap do not count among the first.
    prover.answer(question, (0, 8), (20, 40))
    job = peer.job()
    assert (job.historical.limit, asked(job)[0]) == (4, 8)
    peer.answer(job, minutes(START + 8 * MINUTE, START + 12 * MINUTE))
    end = stage.client.end(name)
    assert (end.status, end.rows, end.expected) == (OK, 12, 12)


def test_a_short_part_in_the_middle_is_fetched_with_its_neighbours(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    peer = stage.peer(broker)
    peer.offer()
    eventually(lambda: broker.server.state._venues.facts("TEST").is_known)
    stage.client.submit(60)
    prover.answer(prover.question(), (20, 20 + PAGE - 1))
    assert asked(peer.job()) == (0, 60)


def test_an_answer_that_cannot_be_right_is_skipped(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    peer = stage.peer(broker)
    peer.offer(slots=2)
    name = stage.client.submit(10)
    question = prover.question()
    prover.say(b"\xff\xff")
    proof = rec.Proof(request_id=name)
    proof.ranges.add(start_time=START, end_time=START + 5 * MINUTE, rows=4, expected=5)
    prover.say(proof.SerializeToString())
    assert asked(peer.job()) == (0, 10)
    assert question.request_id == name
    assert [letter.reason for _, letter in kept(stage.bus)] == ["not a Proof"]
    # Ranges of another request, and beyond this one's.
    other = stage.client.submit(10, start=START + 1_000 * MINUTE)
    prover.answer(prover.question(), (995, 1_005))
    assert asked(peer.job()) == (1_000, 1_010)
    assert other != name


def test_a_restarted_broker_keeps_proven_parts(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    name = stage.client.submit(50)
    prover.answer(prover.question(), (0, 30), holes=(3,))
    eventually(lambda: len(stage.client.pieces(name)) == 1)
    broker.stop()
    second = stage.broker(proof_seconds=60.0)
    question = prover.question()
    assert [((r.start_time - START) // MINUTE, (r.end_time - START) // MINUTE) for r in question.ranges] == [(30, 50)]
    prover.answer(question)
    peer = stage.peer(second)
    peer.offer()
    job = peer.job()
    assert asked(job) == (30, 50)
    peer.answer(job, minutes(START + 30 * MINUTE, START + 50 * MINUTE))
    end = stage.client.end(name)
    assert (end.status, end.rows, end.expected) == (OK, 49, 50)


def test_a_restarted_broker_asks_again_when_no_answer_had_come(stage: Stage) -> None:
    broker, prover = with_prover(stage)
    name = stage.client.submit(10)
    first = prover.question()
    broker.stop()
    stage.broker(proof_seconds=60.0)
    second = prover.question()
    assert (first.request_id, second.request_id) == (name, name)
    prover.answer(second, (0, 10))
    prover.answer(first, (0, 10))
    assert stage.client.end(name).rows == 10


def test_a_cancelled_request_ends_while_it_waits_for_the_answer(stage: Stage) -> None:
    _, prover = with_prover(stage)
    name = stage.client.submit(10)
    question = prover.question()
    stage.client.cancel(name)
    assert stage.client.end(name).status == ing.HistoryReadyNotification.ERROR
    prover.answer(question, (0, 10))
    again = stage.client.submit(10)
    prover.answer(prover.question(), (0, 10))
    assert stage.client.end(again).rows == 10
    assert stage.client.pieces(name) == []


def test_questions_and_proofs_are_checked_at_the_door() -> None:
    assert sound.problem_with_proof(rec.Proof(request_id="r", ranges=[rec.ProvenRange(start_time=2, end_time=1)]))
    crossing = [rec.ProvenRange(start_time=1, end_time=5), rec.ProvenRange(start_time=4, end_time=6)]
    assert sound.problem_with_proof(rec.Proof(request_id="r", ranges=crossing))
    assert sound.problem_with_question(rec.ProofQuestion(request_id="r", ticker="A/B.C", period_seconds=0))
    upside_down = [cw.TimeRange(start_time=2, end_time=2)]
    question = rec.ProofQuestion(request_id="r", ticker="A/B.C", period_seconds=60, ranges=upside_down)
    assert sound.problem_with_question(question)


def test_clients_take_turns_with_their_questions(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """The driver answers in the order of its topic, so a crowd must not fill it before another client's question."""
    monkeypatch.setattr(lifecycle, "MAX_QUESTIONS", 4)
    broker, prover = with_prover(stage)
    crowd = [stage.client.submit(10, client_id="crowd") for _ in range(20)]
    eventually(lambda: len(broker.server.state.requests) == 20)
    other = stage.client.submit(10, client_id="other")
    eventually(lambda: len(broker.server.state.requests) == 21)
    first = [prover.question() for _ in range(4)]
    assert [question.request_id for question in first] == crowd[:4]
    assert stage.bus.state(topics.PROOF_QUESTIONS)[0].end == 4
    stage.client.cancel(crowd[10])
    stage.client.end(crowd[10])
    prover.answer(first[0], (0, 10))
    assert prover.question().request_id == crowd[4]
    prover.answer(first[1], (0, 10))
    assert prover.question().request_id == other
    # Questions about all others were asked, except those that have ended meanwhile.
    for question in first[2:]:
        prover.answer(question, (0, 10))
    for _ in range(14):
        prover.answer(prover.question(), (0, 10))
    assert stage.bus.state(topics.PROOF_QUESTIONS)[0].end == 20


def test_a_crowd_queries_only_ranges_that_can_be_dispatched_soon(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    """Answers cost the driver's time, for which another client's request waits. Waits of different venues are
    independent.
    """
    monkeypatch.setattr(asking, "MAX_ASKED", 3)
    broker, prover = with_prover(stage)
    crowd = [stage.client.submit(10) for _ in range(10)]
    eventually(lambda: len(broker.server.state.requests) == 10)
    for name in crowd[:3]:
        question = prover.question()
        assert question.request_id == name
        prover.answer(question)
    eventually(lambda: broker.server.sizes()["queued"] == 3)
    assert stage.bus.state(topics.PROOF_QUESTIONS)[0].end == 3
    elsewhere = stage.client.submit(10, ticker="BTC/USDT.KRAKEN")
    assert prover.question().request_id == elsewhere
    peer = stage.peer(broker)
    peer.offer(slots=2)
    assert {peer.job().request_id for _ in range(2)} == set(crowd[:2])
    assert [prover.question().request_id for _ in range(2)] == crowd[3:5]


def test_a_crowd_of_refreshes_waits_for_its_turn_as_well(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(asking, "MAX_ASKED", 3)
    broker, _ = with_prover(stage)
    for number in range(10):
        historical = ing.SubmitHistoricalRequest(
            request_id=f"again-{number}",
            ticker="BTC/USDT.TEST",
            start_time=START,
            end_time=START + 10 * MINUTE,
            period_seconds=60,
        )
        stage.client._put(rec.Request(historical=historical, refresh=True), f"again-{number}", 600.0)
    eventually(lambda: len(broker.server.state.requests) == 10)
    assert broker.server.state.matching.queued() == 3
    stage.client.cancel("again-9")
    stage.client.end("again-9")
    peer = stage.peer(broker)
    peer.offer(slots=9)
    assert {peer.job().request_id for _ in range(9)} == {f"again-{number}" for number in range(9)}
    assert stage.bus.state(topics.PROOF_QUESTIONS)[0].end == 0
    assert not broker.server.state.lifecycle._refreshing


def test_a_driver_that_leaves_does_not_delay_waiting_requests(stage: Stage, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lifecycle, "MAX_QUESTIONS", 1)
    broker, prover = with_prover(stage)
    for _ in range(5):
        stage.client.submit(10)
    prover.question()
    peer = stage.peer(broker)
    peer.offer(slots=4)
    assert peer.receive(0.3) is None
    prover.go()
    # The request that has asked waits for its answer.
    assert len({peer.job().request_id for _ in range(4)}) == 4
