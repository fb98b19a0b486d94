import pytest
from google.protobuf.message import Message
from hypothesis import given
from hypothesis import strategies as hyp

from candlewright.wire import ingestor_pb2 as ing
from candlewright.wire.frames import FRAMES, VERSION, encode
from relay.asked import Peer
from relay.door import event_of, frames_of
from relay.events import FrameRefused, MessageReceived
from tests.relay.harness import submit

BODIES = hyp.one_of(
    hyp.binary(max_size=80),
    hyp.builds(
        lambda row, rest: bytes((row.type_id,)) + rest,
        hyp.sampled_from(FRAMES),
        hyp.binary(max_size=80),
    ),
    hyp.builds(lambda cut: encode(submit("r"))[1][:cut], hyp.integers(0, 60)),
)
FRAME_LISTS = hyp.one_of(
    hyp.lists(hyp.binary(max_size=20), max_size=4),
    hyp.builds(lambda version, body: [version, body], hyp.sampled_from([VERSION, b"", b"\x02", b"\x01\x01"]), BODIES),
    hyp.builds(lambda body: [b"", VERSION, body], BODIES),
)


@given(FRAME_LISTS)
def test_any_frames_become_one_event_for_their_sender(frames: list[bytes]) -> None:
    event = event_of([b"me", *frames], 1 + len(frames), at_ns=1)
    assert isinstance(event, MessageReceived | FrameRefused)
    assert event.peer.identity == b"me"
    assert event.peer.is_req == (len(frames) > 1 and frames[0] == b"")
    if isinstance(event, FrameRefused):
        assert event.code in {"MALFORMED", "UNKNOWN_TYPE", "UNEXPECTED_TYPE", "UNKNOWN_VERSION", "TOO_LARGE"}
        assert event.text


@pytest.mark.parametrize("is_req", [False, True])
def test_a_message_is_read_with_or_without_an_empty_delimiter(is_req: bool) -> None:
    delimiter = [b""] if is_req else []
    frames = [b"me", *delimiter, *encode(submit("r"))]
    assert event_of(frames, len(frames), 7) == MessageReceived(Peer(b"me", is_req), submit("r"), 7)
    answer = ing.SubmitResponse(request_id="r")
    assert frames_of(Peer(b"me", is_req), answer) == [b"me", *delimiter, *encode(answer)]


def test_a_message_of_many_parts_is_refused_with_their_number() -> None:
    event = event_of([b"me", VERSION, b"\x10", b"", b""], 10_001, 0)
    assert isinstance(event, FrameRefused)
    assert "this one has 10000" in event.text


@pytest.mark.parametrize("message", [ing.SubmitResponse(), ing.WorkerReady(), ing.HistoryReadyNotification()])
def test_a_message_that_clients_do_not_send_is_refused(message: Message) -> None:
    event = event_of([b"me", *encode(message)], 3, 0)
    assert isinstance(event, FrameRefused)
    assert event.code == "UNEXPECTED_TYPE"
