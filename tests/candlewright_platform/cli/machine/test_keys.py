"""`candlewright keys`."""

import json
import stat
from pathlib import Path

import pytest
from typer.testing import CliRunner

from candlewright.cli.app import app
from candlewright.wire.errors import InvalidRequest
from candlewright.wire.keys import ClientKey


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(*arguments: str) -> str:
    result = CliRunner().invoke(app, ["keys", *arguments, "--data-dir", "d"], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return result.stdout


def test_new_writes_a_private_file_in_the_callers_folder_and_prints_its_path() -> None:
    out = run("new", "alice")
    file = Path("alice.key").absolute()
    assert str(file) in out
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert ClientKey.read(file).name == "alice"


def test_new_prints_json_and_no_secret() -> None:
    out = run("new", "alice", "--file", "a", "--output", "json")
    key = ClientKey.read("a")
    assert json.loads(out) == {
        "name": "alice",
        "role": "client",
        "public": key.public,
        "file": str(Path("a").absolute()),
    }
    assert key.secret not in out


@pytest.mark.parametrize("name", ["al", "alice-2", "alice"])
def test_a_name_that_is_a_prefix_of_another_is_refused(name: str) -> None:
    run("new", "alice")
    with pytest.raises(InvalidRequest, match="alice"):
        run("new", name, "--file", "other")
    assert not Path("other").exists()


def test_an_ingestors_key_says_its_role() -> None:
    out = run("new", "worker", "--role", "ingestor", "--output", "json")
    assert json.loads(out)["role"] == "ingestor"
    assert ClientKey.read("worker.key").name == "worker"


@pytest.mark.parametrize("role", ["viewer", "operator"])
def test_a_token_is_printed_alone_and_stored_nowhere(role: str) -> None:
    token = run("new", "desk", "--role", role).removesuffix("\n")
    assert len(token) > 40 and token.isascii() and " " not in token
    stored = [file.read_text() for file in Path("d/keys").iterdir()]
    assert not [text for text in stored if token in text]
    assert not Path("desk.key").exists()
    assert json.loads(run("list", "--output", "json")) == {"name": "desk", "role": role, "public": None}
    again = json.loads(run("new", "other", "--role", role, "--output", "json"))
    assert (again["name"], again["role"], again["token"] != token) == ("other", role, True)
    with pytest.raises(InvalidRequest, match="--file"):
        run("new", "third", "--role", role, "--file", "x")


def test_list_and_remove() -> None:
    run("new", "bob")
    run("new", "alice")
    rows = [json.loads(line) for line in run("list", "--output", "json").splitlines()]
    assert [row["name"] for row in rows] == ["alice", "bob"]
    assert rows[0]["public"] == ClientKey.read("alice.key").public
    assert json.loads(run("remove", "bob", "--output", "json")) == {"name": "bob", "removed": True}
    assert "bob" not in run("list")
    with pytest.raises(InvalidRequest):
        run("remove", "bob")


def test_a_notice_says_that_keys_are_off(monkeypatch: pytest.MonkeyPatch) -> None:
    def told() -> str:
        return CliRunner().invoke(app, ["keys", "list", "--data-dir", "d"]).stderr

    assert "keys are off" in told()
    monkeypatch.setenv("CANDLEWRIGHT_SECURITY__CURVE", "true")
    assert "keys are off" not in told()


@pytest.mark.processes
@pytest.mark.parametrize(
    ("bind", "curve", "verdict"),
    [
        ("tcp://127.0.0.1:5559", "false", "ok"),
        ("tcp://[::1]:5559", "false", "ok"),
        ("tcp://0.0.0.0:5559", "false", "note"),
        ("tcp://*:5559", "false", "note"),
        ("tcp://0.0.0.0:5559", "true", "ok"),
    ],
)
def test_doctor_notes_a_relay_that_is_open_without_keys(
    monkeypatch: pytest.MonkeyPatch, bind: str, curve: str, verdict: str
) -> None:
    monkeypatch.setenv("CANDLEWRIGHT_RELAY__REQUESTS_BIND", bind)
    monkeypatch.setenv("CANDLEWRIGHT_SECURITY__CURVE", curve)
    lines = CliRunner().invoke(app, ["doctor", "--output", "json", "--data-dir", "d"]).stdout.splitlines()
    found = {row["what"]: row for row in map(json.loads, lines)}["keys"]
    assert found["verdict"] == verdict
    assert ("security.curve" in found["text"]) == (verdict == "note")
