"""What a reader concludes of a source, and remembers."""

import pytest

from gateways.numaflow.server_info import ServerInfo
from gateways.numaflow_sources.state import BATCH_BYTES, ReaderState, SourceRefused, acknowledges_lists
from tests.gateways.numaflow_sources.source_server import result


def info(language: str, version: str, protocol: str = "uds") -> ServerInfo:
    return ServerInfo(protocol, language, "", version)


@pytest.mark.parametrize(
    ("language", "version", "lists"),
    [
        ("go", "v0.9.0", True),
        ("go", "v0.12.0-rc1", True),
        ("java", "0.9.0", True),
        ("python", "0.9.0", True),
        ("python", "0.14.0", True),
        ("rust", "0.1.1", False),
        ("rust", "0.2.0", True),
        ("unknown", "1.0.0", False),
        ("python", "", False),
        ("python", "latest", False),
    ],
)
def test_a_list_goes_only_to_a_released_sdk_that_reads_lists(language: str, version: str, lists: bool) -> None:
    assert acknowledges_lists(info(language, version)) is lists


@pytest.mark.parametrize(
    ("language", "version"), [("go", "0.8.0"), ("python", "0.8.9"), ("java", "0.7"), ("rust", "0.0.9")]
)
def test_sdks_without_handshakes_are_refused(language: str, version: str) -> None:
    with pytest.raises(SourceRefused, match=f"{language} SDK {version}"):
        acknowledges_lists(info(language, version))


def test_only_unix_sockets_are_read() -> None:
    with pytest.raises(SourceRefused, match="tcp"):
        acknowledges_lists(info("python", "0.14.0", "tcp"))


def test_the_largest_record_seen_bounds_what_is_asked_for() -> None:
    state = ReaderState(1, 500)
    assert state.batch_records == 500
    state.weighed(BATCH_BYTES // 10)
    state.weighed(1)
    assert state.batch_records == 10
    state.weighed(BATCH_BYTES * 2)
    assert state.batch_records == 1


def test_an_offset_is_known_by_its_partition_too_and_once_in_a_batch() -> None:
    state = ReaderState(1, 500)
    first, other = result(b"1", b"a"), result(b"1", b"b", partition_id=1)
    assert state.fresh([first, other, first]) == [first, other]
    state.published([first])
    assert state.fresh([first, other]) == [other]


def test_numbers_of_publishes_grow_over_starts() -> None:
    earlier, later = ReaderState(7, 500), ReaderState(8, 500)
    numbers = [earlier.next_number() for _ in range(3)]
    later.restore([(number, [result(b"%d" % number, b"")]) for number in numbers])
    assert later.next_number() > numbers[-1]
    assert later.fresh([result(b"%d" % numbers[0], b"")]) == []
