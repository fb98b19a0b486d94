from hypothesis import given, settings
from hypothesis import strategies as st

from bus.messaging import Claim
from gateways.rocketmq.messages import handles
from tests.rounds import rounds

names = st.text(alphabet="abcdef", min_size=1, max_size=3)


@settings(max_examples=rounds(30))
@given(names, st.integers(0, 99), st.integers(0, 1 << 50), names, st.integers(1, 1 << 30), st.integers(0, 1 << 45))
def test_a_handle_is_read_as_it_was_written(
    topic: str, partition: int, offset: int, group: str, attempt: int, until: int
) -> None:
    claim = Claim(topic, group, partition, offset, attempt)
    assert handles.parse(handles.text_of(claim, until)) == claim
