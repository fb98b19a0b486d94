"""The folder of keys, and the connections that hold a topic."""

import stat
from pathlib import Path

import pytest

from candlewright.wire.errors import ConfigurationError, InvalidRequest
from candlewright.wire.keys import ClientKey
from relay.doors.gate import Holders
from relay.doors.keys import KeyFolder, KnownKeys


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "data")


def test_a_new_key_is_let_in_and_its_secret_is_in_one_private_file(folder: KeyFolder, tmp_path: Path) -> None:
    key = folder.new("alice", tmp_path / "alice.key")
    assert ClientKey.read(tmp_path / "alice.key") == key
    assert folder.names() == {key.public: "alice"}
    assert key.platform == folder.platform().public
    assert stat.S_IMODE((tmp_path / "alice.key").stat().st_mode) == 0o600
    assert stat.S_IMODE((folder.path / "platform.key").stat().st_mode) == 0o600
    kept = [file.read_text() for file in folder.path.iterdir()]
    assert not [text for text in kept if key.secret in text]
    assert key.secret not in repr(key)


@pytest.mark.parametrize(
    "name", ["al", "alice2", "alice", "a:b", "a#b", "a/b", "", ".a", "re", "sub", " a", "a\n", "a" * 65]
)
def test_names_that_would_mix_up_ids_are_refused(folder: KeyFolder, tmp_path: Path, name: str) -> None:
    folder.new("alice", tmp_path / "alice.key")
    with pytest.raises(InvalidRequest):
        folder.new(name, tmp_path / "other.key")
    assert not (tmp_path / "other.key").exists()
    assert list(folder.names().values()) == ["alice"]


def test_names_with_quotes_and_spaces_are_read_back(folder: KeyFolder, tmp_path: Path) -> None:
    key = folder.new("d'o \"b\\ é", tmp_path / "k")
    assert ClientKey.read(tmp_path / "k") == key


def test_no_file_is_overwritten(folder: KeyFolder, tmp_path: Path) -> None:
    (tmp_path / "there").write_text("mine")
    with pytest.raises(ConfigurationError, match="already"):
        folder.new("alice", tmp_path / "there")
    assert (tmp_path / "there").read_text() == "mine"
    assert folder.names() == {}


def test_a_removed_key_is_unknown_at_once_and_counts_as_a_revocation(folder: KeyFolder, tmp_path: Path) -> None:
    known = KnownKeys(folder)
    key = folder.new("alice", tmp_path / "a")
    assert known.name_of(key.public, is_fresh=True) == "alice"
    assert known.revocations == 0
    folder.remove("alice")
    assert known.name_of(key.public, is_fresh=True) == ""
    assert known.revocations == 1
    with pytest.raises(InvalidRequest):
        folder.remove("alice")


def test_a_key_made_anew_under_the_same_name_is_another(folder: KeyFolder, tmp_path: Path) -> None:
    old = folder.new("alice", tmp_path / "a")
    known = KnownKeys(folder)
    folder.remove("alice")
    new = folder.new("alice", tmp_path / "b")
    assert known.name_of(old.public, is_fresh=True) == ""
    assert known.name_of(new.public) == "alice"
    assert known.revocations == 1


def test_a_barred_key_stays_out(folder: KeyFolder, tmp_path: Path) -> None:
    key = folder.new("alice", tmp_path / "a")
    known = KnownKeys(folder)
    known.bar(key.public)
    assert known.name_of(key.public, is_fresh=True) == ""


def test_what_is_no_key_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("name = 'a'\n")
    for path in (tmp_path / "k", tmp_path / "none"):
        with pytest.raises(ConfigurationError, match=str(path)):
            ClientKey.read(path)


def test_a_topic_is_held_until_its_last_connection_leaves_or_ends() -> None:
    inodes = {7: 100, 8: 101}
    holders = Holders(lambda descriptor: inodes.get(descriptor, 0))
    holders.add(b"t", 7)
    holders.add(b"t", 7)
    holders.add(b"t", 8)
    assert not holders.remove(b"t", 9)
    assert not holders.remove(b"t", 8)
    assert holders.sweep() == []
    inodes[7] = 102
    assert not holders.remove(b"t", 7)
    assert holders.sweep() == [b"t"]
    assert len(holders) == 0


def test_a_connection_that_ended_before_it_was_seen_holds_nothing() -> None:
    holders = Holders(lambda descriptor: 0)
    holders.add(b"t", 7)
    assert holders.sweep() == [b"t"]
