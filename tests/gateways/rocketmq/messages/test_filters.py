import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateways.rocketmq.door.status import INVALID_ARGUMENT, Refused
from gateways.rocketmq.messages.filters import filter_of
from protobuf.apache.rocketmq.v1 import definition_pb2 as definition
from tests.gateways.rocketmq.client import Client, bodies, code
from tests.gateways.rocketmq.conftest import Start


def accepts(text: str, kind: int = definition.SQL, tag: str = "red", **properties: str) -> bool:
    message = definition.Message(
        user_attribute=properties, system_attribute=definition.SystemAttribute(tag=tag, keys=["k"])
    )
    return filter_of(definition.FilterExpression(type=definition.FilterType.Name(kind), expression=text))(message)


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [("", True), ("*", True), ("red", True), ("Red", False), ("blue||red", True), (" blue || green ", False)],
)
def test_tags_are_compared_exactly(text: str, is_taken: bool) -> None:
    assert accepts(text, definition.TAG) is is_taken


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [
        ("a = 5", True),
        ("a = 5.0", True),
        ("a = '5'", True),
        ("a = '5.0'", False),
        ("a <> 5", False),
        ("a != 4", True),
        ("a > 4 AND a < 6", True),
        ("a >= 5 and a <= 5", True),
        ("a > -1", True),
        ("a > b", False),
        ("a < b", True),
        ("a BETWEEN 5 AND 7", True),
        ("a NOT BETWEEN 5 AND 7", False),
        ("a IN (1, 5)", True),
        ("c IN ('x', 'it''s')", True),
        ("c NOT IN ('x')", True),
        ("c > 3", False),
        ("NOT c > 3", False),
        ("NOT a > 7", True),
        ("missing = 1", False),
        ("NOT missing = 1", False),
        ("missing <> 1", False),
        ("missing IS NULL", True),
        ("missing IS NOT NULL", False),
        ("a IS NOT NULL", True),
        ("missing = 1 OR a = 5", True),
        ("missing NOT IN (1)", False),
        ("a NOT IN (1, missing)", False),
        ("flag = TRUE", True),
        ("flag", True),
        ("NOT flag", False),
        ("flag <> FALSE", True),
        ("a = TRUE", False),
        ("TRUE", True),
        ("FALSE OR a = 5", True),
        ("(a = 4 OR b = 9) AND TAGS = 'red'", True),
        ("TAGS IN ('blue')", False),
        ("KEYS = 'k'", True),
        ("a = 1 OR a = 5 AND b = 9", True),
        ("(a = 1 OR a = 5) AND b = 8", False),
    ],
)
def test_conditions_over_properties(text: str, is_taken: bool) -> None:
    assert accepts(text, a="5", b="9", c="it's", flag="true") is is_taken


@pytest.mark.parametrize(
    "text",
    [
        "", " ", "a", "a =", "= 1", "a = 1 b", "a = 'x", "(a = 1", "a = 1)", "a BETWEEN 1", "a BETWEEN 1 OR 2",
        "a IN ()", "a IN 1", "a IS 5", "a NOT = 1", "NOT", "a = 1 AND", "a LIKE 'x'", "1", "'x'", "a ; b", "a = 1x",
        "a = --1b", "NULL", "(" * 500 + "a = 1" + ")" * 500, "NOT " * 500 + "a = 1", "a" * 9_000,
    ],
)  # fmt: skip
def test_an_invalid_condition_is_refused(text: str) -> None:
    if text == "a":
        assert not accepts(text)
        return
    with pytest.raises(Refused) as caught:
        accepts(text)
    assert caught.value.code == INVALID_ARGUMENT


@pytest.mark.parametrize(
    ("text", "is_taken"),
    [(" OR ".join(["x"] * 1_600), False), (" AND ".join(["a=1"] * 900), True), ("a IN (" + "2," * 4_000 + "1)", True)],
)
def test_a_long_condition_is_as_good_as_a_short_one(text: str, is_taken: bool) -> None:
    assert accepts(text, a="1") is is_taken


@pytest.mark.parametrize("value", ["nan", "inf", "1_0", "٣", "", "0x1", "1e", "--1"])
def test_a_non_number_compared_with_a_number_is_unknown(value: str) -> None:
    assert not accepts("a <> 5", a=value)
    assert not accepts("a = 5 OR a < 5 OR a > 5", a=value)


@pytest.mark.parametrize("text", ["a |", "a || ", "||", "a|b"])
def test_an_invalid_list_of_tags_is_refused(text: str) -> None:
    with pytest.raises(Refused):
        accepts(text, definition.TAG)


@given(st.text(alphabet="ab1'() =<>ANDORINOT.,|*-$", max_size=40), st.sampled_from([definition.TAG, definition.SQL]))
def test_any_text_is_a_filter_or_refused(text: str, kind: int) -> None:
    try:
        assert accepts(text, kind, a="1") in (True, False)
    except Refused as refused:
        assert refused.code == INVALID_ARGUMENT


@pytest.fixture
async def client(start: Start) -> Client:
    return await start()


async def test_filtered_messages_are_settled_for_their_group_and_reading_continues(client: Client) -> None:
    for index in range(80):
        await client.send("t", b"%d" % index, 0, tag="hit" if index == 70 else "miss")
    assert bodies(await client.receive("t", batch=8, tag="hit", hold=5)) == [b"70"]
    assert bodies(await client.receive("t", batch=8, tag="hit")) == []
    assert bodies(await client.receive("t", "all", batch=1)) == [b"0"]


async def test_a_bad_filter_is_refused_wherever_it_comes(client: Client) -> None:
    assert code(await client.receive("t", sql="a >")) == INVALID_ARGUMENT
    assert code(await client.pull("t", 0, tag="|")) == INVALID_ARGUMENT
    assert code(await client.heartbeat("c", "g", "t", tag="|")) == INVALID_ARGUMENT
