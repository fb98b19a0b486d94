"""The folder of keys: which keys are accepted, by which door."""

import stat
from pathlib import Path

import pytest

from candlewright.wire.errors import ConfigurationError, InvalidRequest
from candlewright.wire.keys import ClientKey
from core.doors import Entry, Holder, KeyFolder, KnownKeys, KnownTokens, Role


@pytest.fixture
def folder(tmp_path: Path) -> KeyFolder:
    return KeyFolder(tmp_path / "data")


def test_a_new_key_is_accepted_and_its_secret_is_in_one_private_file(folder: KeyFolder, tmp_path: Path) -> None:
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


def test_a_new_key_under_the_same_name_is_a_different_key(folder: KeyFolder, tmp_path: Path) -> None:
    old = folder.new("alice", tmp_path / "a")
    known = KnownKeys(folder)
    folder.remove("alice")
    new = folder.new("alice", tmp_path / "b")
    assert known.name_of(old.public, is_fresh=True) == ""
    assert known.name_of(new.public) == "alice"
    assert known.revocations == 1


def test_a_barred_key_remains_refused(folder: KeyFolder, tmp_path: Path) -> None:
    key = folder.new("alice", tmp_path / "a")
    known = KnownKeys(folder)
    known.bar(key.public)
    assert known.name_of(key.public, is_fresh=True) == ""


def test_an_invalid_key_is_refused_with_its_path(tmp_path: Path) -> None:
    (tmp_path / "k").write_text("name = 'a'\n")
    for path in (tmp_path / "k", tmp_path / "none"):
        with pytest.raises(ConfigurationError, match=str(path)):
            ClientKey.read(path)


def test_a_key_opens_the_door_of_its_role_only(folder: KeyFolder, tmp_path: Path) -> None:
    alice = folder.new("alice", tmp_path / "a")
    worker = folder.new("worker", tmp_path / "w", Role.ingestor)
    clients, ingestors = KnownKeys(folder), KnownKeys(folder, Role.ingestor)
    assert [known.name_of(alice.public) for known in (clients, ingestors)] == ["alice", ""]
    assert [known.name_of(worker.public) for known in (clients, ingestors)] == ["", "worker"]


def test_names_are_unique_over_roles_and_only_owners_of_ids_may_not_be_prefixes(
    folder: KeyFolder, tmp_path: Path
) -> None:
    folder.new("alice", tmp_path / "a")
    for number in ("1", "10"):
        folder.new(f"ingestor-{number}", tmp_path / number, Role.ingestor)
    folder.new("alice-2", tmp_path / "b", Role.ingestor)
    with pytest.raises(InvalidRequest, match="already"):
        folder.new_token("ingestor-1", Role.viewer)
    with pytest.raises(InvalidRequest, match="alice"):
        folder.new_token("alice-3", Role.operator)


def test_only_the_hash_of_a_token_is_kept(folder: KeyFolder) -> None:
    token = folder.new_token("desk", Role.operator)
    known = KnownTokens(folder)
    assert known.holder_of(token) == Holder("desk", Role.operator)
    assert not [file for file in folder.path.iterdir() if token in file.read_text()]
    (digest,) = folder.names(Role.operator)
    for wrong in (token[:-1], token + "x", digest, "", "é", "x" * 10_000):
        assert known.holder_of(wrong) is None
    assert folder.entries() == [Entry("desk", Role.operator, "")]
    folder.remove("desk")
    assert KnownTokens(folder).holder_of(token) is None


def test_a_role_has_either_a_key_or_a_token(folder: KeyFolder, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="token"):
        folder.new("a", tmp_path / "a", Role.viewer)
    with pytest.raises(InvalidRequest, match="key"):
        folder.new_token("a", Role.client)
    assert folder.entries() == []


def test_the_platforms_own_key_is_made_once(folder: KeyFolder) -> None:
    file = folder.own("own-ingestors", Role.ingestor)
    key = ClientKey.read(file)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert folder.own("own-ingestors", Role.ingestor) == file
    assert ClientKey.read(file) == key
    folder.remove("own-ingestors")
    assert ClientKey.read(folder.own("own-ingestors", Role.ingestor)) != key
    file.unlink()
    with pytest.raises(ConfigurationError, match="own-ingestors"):
        folder.own("own-ingestors", Role.ingestor)
