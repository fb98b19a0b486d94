"""The server: the tools over stdin and stdout, which carry nothing but the protocol."""

from mcp.server.mcpserver import MCPServer
from mcp_types import ToolAnnotations

from candlewright.mcp.api import asking
from candlewright.mcp.tools import readers, writers
from candlewright.settings import ClientConfig
from candlewright.version import VERSION

__all__ = ["run", "server_of"]

_ABOUT = """Market data and triggers of a candlewright platform. Times are UTC. Candles have the open time as their key
and are half-open ranges. Begin with `stored` or `markets`; `tables` has the columns for `sql` and for triggers."""
_READ_ONLY = " Nothing can be changed: the operator starts the server with --allow-write for that."


def server_of(settings: ClientConfig, *, allow_write: bool = False) -> MCPServer:
    server = MCPServer(
        "candlewright",
        version=VERSION,
        instructions=_ABOUT + ("" if allow_write else _READ_ONLY),
        log_level="WARNING",
    )
    ask = asking(settings)
    for tool in readers(ask):
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=True, open_world_hint=False))
    for tool in writers(ask) if allow_write else ():
        is_destructive = tool.__name__.startswith("remove")
        server.add_tool(tool, annotations=ToolAnnotations(read_only_hint=False, destructive_hint=is_destructive))
    return server


def run(settings: ClientConfig, *, allow_write: bool) -> None:
    """Until the client closes stdin."""
    server_of(settings, allow_write=allow_write).run("stdio")
