"""The agents' door: REST and MCP over one set of operations, each agent with its own token and its own things only."""
