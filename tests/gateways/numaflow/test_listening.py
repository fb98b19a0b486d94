"""Which process owns a socket's file."""

import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from gateways.numaflow.listening import identity, make_way, remove_own


@pytest.fixture
def listening(tmp_path: Path) -> Iterator[tuple[Path, socket.socket]]:
    path = tmp_path / "s"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen(0)
        yield path, server


def test_the_file_of_a_dead_process_is_replaced(listening: tuple[Path, socket.socket]) -> None:
    path, server = listening
    with pytest.raises(OSError, match="another process listens"):
        make_way(path)
    server.close()
    make_way(path)
    assert not path.exists()
    make_way(path)


def test_a_process_too_busy_to_answer_is_not_dead(listening: tuple[Path, socket.socket]) -> None:
    path, _ = listening
    waiting = [socket.socket(socket.AF_UNIX) for _ in range(4)]
    try:
        for each in waiting:
            each.setblocking(False)
            with suppress(BlockingIOError):
                each.connect(str(path))
        with pytest.raises(OSError, match="another process listens"):
            make_way(path)
        assert path.exists()
    finally:
        for each in waiting:
            each.close()


def test_a_file_that_is_not_a_socket_is_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "s"
    make_way(path)
    path.write_text("mine")
    with pytest.raises(OSError, match="is not a socket"):
        make_way(path)
    assert path.read_text() == "mine"


def test_a_path_that_is_too_long_is_named() -> None:
    with pytest.raises(OSError, match="at most 107 bytes"):
        make_way(Path("/tmp") / ("x" * 107))


def test_a_file_that_is_another_ones_by_now_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "s"
    path.write_text("ours")
    ours = identity(path)
    other = tmp_path / "other"
    other.write_text("theirs")
    other.replace(path)
    remove_own(path, ours)
    assert path.read_text() == "theirs"
    remove_own(path, identity(path))
    assert not path.exists()
