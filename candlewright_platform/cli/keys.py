"""`candlewright keys`: the clients that are let in where keys are on."""

from pathlib import Path

from candlewright.cli.output import Output, json_line, print_rows, say
from candlewright_platform.cli.loading import settings_for
from core.settings import Settings
from relay.doors.keys import KeyFolder


def new(name: str, file: Path | None, output: Output, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    path = (file if file is not None else Path(f"{name}.key")).absolute()
    key = KeyFolder(settings.data_dir).new(name, path)
    if output is Output.json:
        print(json_line({"name": key.name, "public": key.public, "file": str(path)}))
        return
    print(f"{name} is let in with {path}; it is nowhere else, so keep it, and keep it secret")
    _say_when_off(settings)


def list_keys(output: Output, data_dir: Path | None, config: Path | None) -> None:
    settings = settings_for(config, data_dir)
    names = KeyFolder(settings.data_dir).names()
    rows = [{"name": name, "public": public} for public, name in sorted(names.items(), key=lambda item: item[1])]
    print_rows(rows, output, ["name", "public"], "no keys")
    if output is Output.table:
        _say_when_off(settings)


def remove(name: str, output: Output, data_dir: Path | None, config: Path | None) -> None:
    KeyFolder(settings_for(config, data_dir).data_dir).remove(name)
    if output is Output.json:
        print(json_line({"name": name, "removed": True}))
    else:
        print(f"{name} is let in no more")


def _say_when_off(settings: Settings) -> None:
    if not settings.relay.curve:
        say("keys are off, and everybody is let in: set `curve = true` in [relay] and start the platform again")
