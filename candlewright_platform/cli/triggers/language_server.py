"""`candlewright language-server`: help in an editor, over stdio."""

from collections.abc import Sequence
from pathlib import Path

from candlewright_platform.cli.machine.loading import settings_for
from candlewright_platform.cli.triggers.text import read_views
from candlewright_platform.language_server.server import make_server
from triggers.texts.check import TriggerRules


def serve(views: Sequence[Path], config: Path | None) -> None:
    """Serve until the editor ends it."""
    settings = settings_for(config, None)
    rules = TriggerRules.of(settings.triggers, settings.bus.partitions, frozenset(settings.alerts.destinations))
    make_server(rules, read_views(views, settings)).start_io()
