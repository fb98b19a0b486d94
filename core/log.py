"""Structured logs: one event per line, key=value on a terminal, JSON in a file or pipe."""

import logging
import sys
from typing import cast

from core.absent import left_out

# structlog would load rich for tracebacks with local variables, which these logs do not have: 3 MB in every process.
with left_out("rich"):
    import structlog

# Commands do not configure logs, and structlog's default is stdout, which is reserved for their rows.
structlog.configure(logger_factory=lambda *_: structlog.PrintLogger(sys.stderr))


def configure_logging(part: str, level: str = "info", *, as_json: bool | None = None) -> None:
    """Send all logs of this process to stderr, each line naming its `part`."""
    if as_json is None:
        as_json = not sys.stderr.isatty()
    renderer: structlog.typing.Processor = (
        structlog.processors.JSONRenderer() if as_json else structlog.dev.ConsoleRenderer()
    )
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(logging.getLevelNamesMapping()[level.upper()]),
        logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        cache_logger_on_first_use=True,
    )
    structlog.contextvars.bind_contextvars(part=part)


def get_logger() -> structlog.typing.FilteringBoundLogger:
    return cast(structlog.typing.FilteringBoundLogger, structlog.get_logger())
