"""The commands of `candlewright-platform`: its own if it is installed, else stand-ins that say it is missing."""

from collections.abc import Callable

import typer

from candlewright.extensions import PLATFORM, PlatformMissing, extension

#: Commands of the platform, including those in groups, so that they can be listed if it is not installed.
COMMANDS = (
    "up",
    "demo",
    "doctor",
    "gaps",
    "config",
    "keys",
    "dead-letters",
    "kapacitor-udf",
    "language-server",
    "bench",
)
GROUPED_COMMANDS = {"trigger": ("check", "explain", "format", "language", "plan", "try")}


def join(app: typer.Typer) -> None:
    """Add the platform's commands to `app`; without the platform, stand-ins that say so."""
    platform: typer.Typer | None = extension("commands")
    if platform is not None:
        merge(app, platform)
        return
    _add_missing(app, "candlewright", COMMANDS)
    for group in app.registered_groups:
        if group.typer_instance is not None and group.name:
            _add_missing(group.typer_instance, f"candlewright {group.name}", GROUPED_COMMANDS.get(group.name, ()))


def merge(app: typer.Typer, other: typer.Typer) -> None:
    """Add the commands and groups of `other`; a group that both have gets the commands of both."""
    app.registered_commands += other.registered_commands
    groups = {group.name: group.typer_instance for group in app.registered_groups}
    for group in other.registered_groups:
        own = groups.get(group.name)
        if own is None:
            app.registered_groups.append(group)
        elif group.typer_instance is not None:
            merge(own, group.typer_instance)


def _add_missing(app: typer.Typer, prefix: str, names: tuple[str, ...]) -> None:
    takes_anything = {"allow_extra_args": True, "ignore_unknown_options": True}
    for name in names:
        command = app.command(name, help=f"Needs {PLATFORM}.", add_help_option=False, context_settings=takes_anything)
        command(_refusal(f"`{prefix} {name}`"))


def _refusal(what: str) -> Callable[[], None]:
    def refuse() -> None:
        raise PlatformMissing(what)

    return refuse
