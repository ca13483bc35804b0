"""The MCP server: read-only access to sessions and transcripts for any MCP client."""
