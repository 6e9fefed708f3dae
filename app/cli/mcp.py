"""`./whetstone mcp`: the agents' tools over standard input and output, for a program that starts them itself."""

from __future__ import annotations

import os

import click

from app.api.caller import admit_caller
from app.api.mcp import make_server
from app.cli.common import open_installation
from app.errors import Misconfigured

TOKEN = "WHETSTONE_TOKEN"  # noqa: S105 - a variable's name


@click.command()
def mcp() -> None:
    """Serve one agent's tools over MCP on standard input and output.

    The agent's token is read from the variable WHETSTONE_TOKEN. Works beside a running `up`, or without it; what a
    worker has to do waits for one.
    """
    token = os.environ.pop(TOKEN, "")
    if not token:
        raise Misconfigured(f"Set {TOKEN} to a token of the agent: `./whetstone agents token create NAME` makes one.")
    bearer = f"Bearer {token}"
    with open_installation(with_key=False) as app:
        admit_caller(bearer)
        make_server(app, lambda _: admit_caller(bearer)).run("stdio")
