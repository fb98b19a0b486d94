"""`candlewright mcp`: the Model Context Protocol over stdin and stdout."""

from pathlib import Path

from candlewright.cli.loading import settings_for
from candlewright.wire.errors import CandlewrightError


def serve(*, allow_write: bool, config: Path | None) -> None:
    """Raises CandlewrightError without the SDK."""
    settings = settings_for(config)
    try:
        from candlewright.mcp.server import run
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] not in ("mcp", "mcp_types", "anyio"):
            raise
        raise CandlewrightError("`candlewright mcp` needs the MCP SDK: install candlewright[mcp]") from error
    run(settings, allow_write=allow_write)
