"""The server: the tools over stdin and stdout, which carry nothing but the protocol."""

from typing import Any

from mcp.server.mcpserver import MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp_types import ToolAnnotations
from pydantic import ValidationError

from candlewright.mcp.api import asking
from candlewright.mcp.tools import readers, writers
from candlewright.settings import ClientConfig
from candlewright.version import VERSION

__all__ = ["run", "server_of"]

_ABOUT = """Market data and triggers of a candlewright platform. Times are UTC. Candles have the open time as their key
and are half-open ranges. Begin with `stored` or `markets`; `tables` has the columns for `sql` and for triggers."""
_READ_ONLY = " Nothing can be changed: the operator starts the server with --allow-write for that."


class _Server(MCPServer):
    """The SDK ignores unknown arguments, and its sentences name its own classes."""

    async def call_tool(self, name: str, arguments: dict[str, Any], *others: Any, **named: Any) -> Any:
        known = {tool.name: tool.input_schema["properties"] for tool in await self.list_tools()}.get(name, arguments)
        if unknown := sorted(arguments.keys() - known.keys()):
            raise ToolError(f"{name} has no argument {unknown[0]!r} (its arguments: {', '.join(known) or 'none'})")
        try:
            return await super().call_tool(name, arguments, *others, **named)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            wrong = [".".join(map(str, each["loc"])) + f": {each['msg']}" for each in error.__cause__.errors()]
            raise ToolError("; ".join(wrong)) from None


def server_of(settings: ClientConfig, *, allow_write: bool = False) -> MCPServer:
    server = _Server(
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
