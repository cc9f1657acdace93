"""An MCP server made with the Python SDK; install.sh installs that."""

from datetime import datetime, timezone

from mcp.server.mcpserver import MCPServer

server = MCPServer("clock")


@server.tool()
def now() -> str:
    """The time in UTC."""
    return datetime.now(timezone.utc).isoformat()


server.run()
