"""The broker with keys on: which keys are accepted, and whose frames are heard. Real sockets over a bus."""

from contextlib import suppress
from pathlib import Path

import pytest
import zmq

from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.keys import ClientKey
from core.doors import KeyFolder, Role
from core.metrics import REGISTRY
from tests.broker.conftest import Stage
from tests.broker.harness import START, Peer, RunningBroker, eventually, minutes

QUIET_SECONDS = 0.3


class Guarded:
    def __init__(self, stage: Stage, where: Path) -> None:
        self.stage = stage
        self.folder = KeyFolder(where / "data")
        self._where = where
        self.broker: RunningBroker = stage.broker(keys_in=where / "data")

    def key(self, name: str, role: Role = Role.ingestor) -> ClientKey:
        return self.folder.new(name, self._where / f"{name}.key", role)

    def peer(self, key: ClientKey | None, name: bytes = b"") -> Peer:
        return self.stage.add(Peer(self.broker.address, key, name))

    def slots(self) -> int:
        return self.broker.server.state.slots.total


@pytest.fixture
def guarded(stage: Stage, tmp_path: Path) -> Guarded:
    return Guarded(stage, tmp_path)


def counted(name: str) -> float:
    return REGISTRY.get_sample_value(f"candlewright_broker_{name}_total") or 0.0


def test_an_ingestors_key_is_served(guarded: Guarded) -> None:
    peer = guarded.peer(guarded.key("worker"))
    peer.offer()
    request_id = guarded.stage.client.submit(rows=3)
    peer.answer(peer.job(), minutes(START, START + 3 * 60_000_000_000))
    assert guarded.stage.client.end(request_id).rows == 3


def test_no_other_key_gets_anything_and_each_refusal_is_counted(guarded: Guarded) -> None:
    alice = guarded.key("alice", Role.client)
    public, secret = (part.decode() for part in zmq.curve_keypair())
    unknown = ClientKey("worker", public, secret, alice.platform)
    strangers = []
    for key in (None, alice, unknown):
        before = counted("refused_keys")
        strangers.append(guarded.peer(key))
        # The refusal may come before the offer, which then has no connection to go to.
        with suppress(zmq.Again):
            strangers[-1].offer(flags=zmq.NOBLOCK)
        eventually(lambda before=before: counted("refused_keys") > before)
    known = guarded.peer(guarded.key("worker"))
    known.offer()
    guarded.stage.client.submit(rows=3)
    assert known.job()
    assert [stranger.receive(QUIET_SECONDS, heartbeats=True) for stranger in strangers] == [None, None, None]
    assert guarded.slots() == 0


def test_a_removed_key_is_no_longer_heard_and_its_slots_are_gone(guarded: Guarded) -> None:
    peer = guarded.peer(guarded.key("worker"))
    peer.offer(slots=2)
    eventually(lambda: guarded.slots() == 2)
    guarded.folder.remove("worker")
    eventually(lambda: guarded.slots() == 0)
    before = counted("unknown_frames")
    peer.offer()
    eventually(lambda: counted("unknown_frames") > before)
    guarded.stage.client.submit(rows=3)
    assert peer.receive(QUIET_SECONDS) is None
    other = guarded.peer(guarded.key("other"))
    other.offer()
    assert other.job()


def test_no_ingestor_takes_over_the_name_of_another(guarded: Guarded) -> None:
    peer = guarded.peer(guarded.key("worker"), name=b"same")
    peer.offer()
    eventually(lambda: guarded.slots() == 1)
    thief = guarded.peer(guarded.key("thief"), name=b"same")
    thief.send(ing.WorkerReady(exchanges=["TEST"], job_type=ing.HISTORICAL))
    guarded.stage.client.submit(rows=3)
    assert peer.job()
    assert thief.receive(QUIET_SECONDS, heartbeats=True) is None
