"""`candlewright keys`: who is allowed through the platform's doors."""

from pathlib import Path

from candlewright.cli.output import Output, json_line, print_rows, say
from candlewright.wire.errors import InvalidRequest
from candlewright_platform.cli.machine.loading import settings_for
from core.doors import KeyFolder, Role
from core.settings import Settings

_SETTING = {Role.client: "client.key", Role.ingestor: "ingestor.key"}


def new(
    name: str, role: Role, file: Path | None, *, output: Output, data_dir: Path | None, config: Path | None
) -> None:
    settings = settings_for(config, data_dir)
    folder = KeyFolder(settings.data_dir)
    if role.has_token:
        if file is not None:
            raise InvalidRequest(f"A {role} has a token, which is printed: leave --file out.")
        _print_token(name, role, folder.new_token(name, role), output)
        return
    path = (file if file is not None else Path(f"{name}.key")).absolute()
    key = folder.new(name, path, role)
    if output is Output.json:
        print(json_line({"name": key.name, "role": role.value, "public": key.public, "file": str(path)}))
        return
    print(f"{name} is accepted as {role} with {path} (setting {_SETTING[role]})")
    print("The secret is in no other file: keep it.")
    _say_when_off(settings)


def list_keys(output: Output, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    rows = [
        {"name": entry.name, "role": entry.role.value, "public": entry.public or None}
        for entry in KeyFolder(settings.data_dir).entries()
    ]
    print_rows(rows, output, columns=["name", "role", "public"], empty="no keys")
    if output is Output.table:
        _say_when_off(settings)


def remove(name: str, output: Output, data_dir: Path | None, *, config: Path | None) -> None:
    KeyFolder(settings_for(config, data_dir).data_dir).remove(name)
    if output is Output.json:
        print(json_line({"name": name, "removed": True}))
    else:
        print(f"the key of {name} is revoked")


def _print_token(name: str, role: Role, token: str, output: Output) -> None:
    """The token alone is on stdout, for `TOKEN=$(candlewright keys new …)`."""
    if output is Output.json:
        print(json_line({"name": name, "role": role.value, "token": token}))
        return
    say(f"the token of {name} ({role}); only its hash is stored, so keep it:")
    print(token)


def _say_when_off(settings: Settings) -> None:
    if not settings.security.curve:
        say("keys are off, so every client is accepted: set `curve = true` in [security] and start the platform again")
