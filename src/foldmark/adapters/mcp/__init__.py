"""The MCP server: sessions and transcripts for any MCP client, to be read and not written."""
