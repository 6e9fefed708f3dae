"""`./whetstone verify`: the proof that nothing in the record was altered. It loads nothing that prints the record."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import click

from app.cli.common import CommandContext, as_usage, installation_command, open_installation, read_text, text_file
from app.cli.printing import print_hint, print_json, say
from app.config import load_settings
from app.history.heads import parse_heads
from app.history.verify import verify as check
from app.models.master_key import holds_master_key
from app.models.statement_log import trust_claimed_installation
from app.statements.checkpointing import open_kept, overdue_words

CLAIMED = (
    "Nothing on this machine names the installation to trust, so the database was believed: compare the fingerprint {} "
    "with `./whetstone keys check` on the worker's host."
)


@click.command()
@click.option("--agent", "name", metavar="NAME", help="Only this agent's chain and memories.")
@text_file("--checkpoint", "Also a checkpoint that somebody kept: does the log extend it? - for standard input.")
@text_file("--heads", "Also compare with what `audit heads --json` printed before; - for standard input.")
@installation_command(opened=False)
def verify(context: CommandContext, name: str | None, heads: Path | None, checkpoint: Path | None) -> int:
    """Check every entry's hash and chain, and replay the log against the tables. Writes nothing.

    What decides who may read is compared with the log of statements too, whose signatures are checked. Everything,
    unless an agent or an account is named.
    """
    if checkpoint is not None and (name or context.account):
        raise click.UsageError("A checkpoint is of the whole log: leave --agent and --account out.")
    signed = [] if checkpoint is None else [(read_text(checkpoint) or "").encode()]
    with as_usage():
        kept = [] if heads is None else parse_heads((read_text(heads) or "").split("\n"))
    settings = load_settings()
    is_pinned = settings.pinned_path.exists()
    with open_installation(with_key=not is_pinned and settings.master_key_path.exists()):
        is_claimed = not (is_pinned or holds_master_key())
        claimed = trust_claimed_installation() if is_claimed else None
        agent = context.find_agent(name) if name else None
        home = context.find_account() if context.account and not agent else None
        scope = agent.name if agent else f"the account {home.name}" if home else "the whole installation"
        named = f" --agent {context.agent_argument(agent)}" if agent else context.account_argument
        verdict = check(agent, home, heads=kept, checkpoints=signed)
        if claimed is not None:
            verdict = replace(verdict, warnings=(CLAIMED.format(claimed.verifier.fingerprint), *verdict.warnings))
        is_whole = agent is None and home is None and settings.master_key_path.exists()
        if verdict.ok and is_whole and (overdue := overdue_words()) is not None:
            verdict = replace(verdict, ok=False, first_problem=overdue)
        if context.as_json:
            print_json(verdict.as_json())
            return 0 if verdict.ok else 1
        if verdict.ok:
            say(f"All is well: {verdict.entries:,} entries of {scope} are as they were written, and explain every")
            say("memory, flag, setting and total as it stands now.")
            _say_forgotten(verdict.forgotten)
            for warning in verdict.warnings:
                say(f"Look at this: {warning}")
            if signed:
                say(f"It extends the checkpoint of {open_kept(signed[0]).size:,} leaves that was kept.")
            if heads:
                say(f"{len(kept):,} exported heads still stand.")
            else:
                print_hint("audit heads", "To be sure also against whoever owns the database, keep its heads elsewhere")
            return 0
        say(f"NOT as it was written, after {verdict.entries:,} entries of {scope}:")
        say(f"  {verdict.first_problem}")
        say(f"Stop changing things, keep a copy of the database, and compare: ./whetstone audit{named} --json")
        return 1


def _say_forgotten(count: int) -> None:
    if count == 1:
        say("1 agent was forgotten: its chain is intact, and its content is gone, because no key to it is left.")
    elif count:
        say(f"{count:,} agents were forgotten: their chains are intact, and their content is gone with their keys.")
