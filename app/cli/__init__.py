"""The command line: its table of commands, loaded one at a time, and what a person reads when one of them fails."""

from __future__ import annotations

import importlib
import importlib.util
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import click

from app.errors import WhetstoneError, has_no_room
from app.loading import nothing_collected

F = TypeVar("F", bound=Callable[..., Any])


@dataclass(frozen=True)
class LazyCommand:
    """A command that is imported only when it runs, by its name."""

    module: str
    help: str

    def load(self, name: str) -> click.Command:
        if self.module not in sys.modules:
            with nothing_collected():
                importlib.import_module(self.module)
        command: click.Command = getattr(sys.modules[self.module], name)
        return command


COMMANDS = {
    "up": LazyCommand("app.cli.up", "Start everything on this machine, and print the address."),
    "demo": LazyCommand("app.cli.demo", "Make two agents that need no API key, to try everything on."),
    "agents": LazyCommand("app.cli.agents", "Create, list, show, set, pause, resume and forget agents; their tokens."),
    "models": LazyCommand("app.cli.models", "List the models in use; rename one for all agents that have it."),
    "memories": LazyCommand("app.cli.memories", "Import, list and export an agent's memories, without their content."),
    "refine": LazyCommand("app.cli.refine", "Start a refinement of an agent."),
    "refinements": LazyCommand("app.cli.refinements", "List, show and stop refinements."),
    "attention": LazyCommand("app.cli.attention", "List what needs attention, and mark it as seen."),
    "notices": LazyCommand("app.cli.notices", "List who is told of what while nobody looks, test it, read the log."),
    "rollback": LazyCommand("app.cli.rollback", "Take back a refinement, a rollback or one audit entry; or rewind."),
    "sweep": LazyCommand("app.cli.refine", "Start what is due now."),
    "grants": LazyCommand("app.cli.grants", "List, request and revoke exceptions: who may read, and until when."),
    "audit": LazyCommand("app.cli.audit", "Print the audit log as JSON Lines or as a table."),
    "verify": LazyCommand("app.cli.verify", "Check the audit log and replay it against the tables."),
    "accounts": LazyCommand("app.cli.accounts", "List and create accounts; limit what each may use."),
    "users": LazyCommand("app.cli.users", "Create, list and deactivate the people who run the agents."),
    "keys": LazyCommand("app.cli.keys", "Check, back up, restore and rotate the keys."),
    "restore": LazyCommand("app.cli.restore", "Go on after a restore from a backup."),
    "schedule": LazyCommand("app.cli.schedule", "Say when agents are refined by themselves, and how many are due."),
    "limits": LazyCommand("app.cli.limits", "Print the operator's limits and settings, and where each comes from."),
    "db": LazyCommand("app.cli.db", "Bring the database to this version."),
    "doctor": LazyCommand("app.cli.doctor", "Say what is wrong with this installation, if anything is."),
    "mcp": LazyCommand("app.cli.mcp", "Serve one agent's tools over MCP on standard input and output."),
    "web": LazyCommand("app.cli.processes", "Run the web process alone."),
    "worker": LazyCommand("app.cli.processes", "Run a worker alone."),
    "beat": LazyCommand("app.cli.processes", "Run the scheduler alone."),
    "test": LazyCommand("app.cli.develop", "Run the checks and the tests of this checkout."),
    "check": LazyCommand("app.cli.develop", "Run the linters, the types and the import contracts."),
}
"""In the order of `--help`. A new command is one line here and one module."""

HIDDEN = {"prepare": LazyCommand("app.cli.processes", "Migrations, keys and the first admin, as `up` makes them.")}


class LazyGroup(click.Group):
    """Knows its commands by the table; `--help` imports none of them. One whose module is not there is not listed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [name for name, entry in COMMANDS.items() if importlib.util.find_spec(entry.module)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        entry = {**COMMANDS, **HIDDEN}.get(cmd_name)
        return entry.load(cmd_name) if entry and importlib.util.find_spec(entry.module) else None

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Commands"):
            formatter.write_dl([(name, COMMANDS[name].help) for name in self.list_commands(ctx)])


@click.group(
    name="whetstone",
    cls=LazyGroup,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    epilog="Exit status: 0 done, 1 failed, 2 wrong usage, 3 refused by a rule.",
)
def cli() -> None:
    """Where AI agents look after their own long-term memories, in guarded, consented, reversible refinements."""


class PartlyLazyGroup(click.Group):
    """A group whose commands of these names stand in other modules: each is imported only when it is asked for."""

    def __init__(self, *names: Any, elsewhere: Mapping[str, str], **more: Any) -> None:
        super().__init__(*names, **more)
        self._elsewhere = elsewhere

    def list_commands(self, ctx: click.Context) -> list[str]:
        return sorted({*super().list_commands(ctx), *self._elsewhere})

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        module = self._elsewhere.get(cmd_name)
        return LazyCommand(module, "").load(cmd_name) if module else super().get_command(ctx, cmd_name)


def json_option(command: F) -> F:
    """The `--json` of every command, as the parameter `as_json`; it also turns errors into JSON on stderr."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")(command)


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit. A command returns its exit status, or nothing for 0."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    sys.exit(_run_command(arguments))


def _run_command(arguments: Sequence[str]) -> int:
    as_json = "--json" in arguments
    try:
        status = cli.main(list(arguments), prog_name="whetstone", standalone_mode=False)
        sys.stdout.flush()
    except click.ClickException as error:
        if as_json:
            return _complain(as_json, "usage", error.format_message(), error.exit_code)
        error.show()
        return error.exit_code
    except WhetstoneError as error:
        return _complain(as_json, error.code, error.sentence, error.exit_status)
    except (click.Abort, KeyboardInterrupt):
        return 130
    except BrokenPipeError:
        _drop_output()
        return 1
    except Exception as error:  # noqa: BLE001 - the last one to see it: a sentence now, the details in a file
        return _complain_of_the_unexpected(as_json, error)
    return status if isinstance(status, int) else 0


def _complain(as_json: bool, code: str, message: str, status: int) -> int:
    """Says on stderr what went wrong, as a sentence or as JSON, and answers with the exit status."""
    text = json.dumps({"error": {"code": code, "message": message}}) if as_json else f"Error: {message}"
    click.echo(text, err=True)
    return status


def _complain_of_the_unexpected(as_json: bool, error: Exception) -> int:
    if isinstance(error, OSError) and has_no_room(error):
        _drop_output()
        what = f"{error.filename} could not be written" if error.filename else "not everything could be written"
        return _complain(as_json, "disk_full", f"The disk is full: {what}. Free some space, then try again.", 1)
    from app.cli.crash import record_crash

    said = f"Something unexpected happened ({type(error).__name__}). {record_crash(error)}"
    return _complain(as_json, "unexpected", said, 1)


def _drop_output() -> None:
    """`./whetstone audit | head`: nothing more to say, and nothing to complain about at exit."""
    import os

    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
