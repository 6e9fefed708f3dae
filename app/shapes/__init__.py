"""What programs are told of each noun: one model a noun, for REST, MCP, the pages' twins and `--json` alike."""
