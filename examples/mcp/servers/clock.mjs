// An MCP server made with the TypeScript SDK; install.sh installs that.
import { McpServer } from "@modelcontextprotocol/server";
import { serveStdio } from "@modelcontextprotocol/server/stdio";

serveStdio(() => {
    const server = new McpServer({ name: "clock", version: "1.0.0" });
    server.registerTool("now", { description: "The time in UTC." }, async () => ({
        content: [{ type: "text", text: new Date().toISOString() }],
    }));
    return server;
});
