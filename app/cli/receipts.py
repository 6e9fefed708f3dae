"""`./whetstone audit receipt` and `audit check-receipt`: a statement with its proof, and what it proves to anybody."""

from __future__ import annotations

import json
from pathlib import Path

import click
from sqlalchemy import select

from app.cli import json_option
from app.cli.common import CommandContext, installation_command
from app.cli.printing import print_facts, print_hint, print_json, say
from app.errors import WhetstoneError
from app.models import Agent
from app.models.base import iso
from app.shapes.receipt import ReceiptShape
from app.silo.merkle import ProofBroken
from app.silo.notes import NoteBroken, NoteVerifier
from app.statements.checkpointing import make_checkpoint
from app.statements.receipts import check_receipt, find_index, is_covered, make_receipt

IN_FILE = click.Path(exists=True, dir_okay=False, path_type=Path)
NEW_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("name", metavar="ID")
@click.option("--out", type=NEW_FILE, help="Write it to this file, which is not there yet, instead of printing it.")
@installation_command(unique=True)
def receipt(context: CommandContext, name: str, out: Path | None) -> None:
    """Print the receipt of a statement. ID: its number in the log, or that of an exception, refinement, request, token.

    Whoever has the installation's public key can check it, without this installation.
    """
    account_id = context.given_account_id()
    agents = select(Agent.id) if account_id is None else select(Agent.id).where(Agent.account_id == account_id)
    index = find_index(name, agents)
    if not is_covered(index):
        make_checkpoint()
    made = make_receipt(index)
    if out is not None:
        _write_new(out, made.file)
    if context.as_json:
        print_json(ReceiptShape.tell(made).as_json() | ({"path": str(out)} if out else {}))
    elif out is None:
        click.echo(made.file.decode(), nl=False)
    else:
        say(f"Wrote the receipt of statement {index} to {out}.")
        print_hint(f"audit check-receipt {out} --key KEY", "To check it, here or elsewhere")


@click.command("check-receipt")
@click.argument("file", type=IN_FILE)
@click.option(
    "--key",
    "keys",
    required=True,
    multiple=True,
    help="The installation's public key, name+id+base64; or the file of its /.well-known/whetstone.json.",
)
@json_option
def check_file(file: Path, keys: tuple[str, ...], as_json: bool) -> int:
    """Say what a receipt proves to who has the installation's public key. Asks no database.

    Exit status: 0 when it holds, 1 otherwise.
    """
    verifiers = [verifier for key in keys for verifier in _read_keys(key)]
    try:
        found = check_receipt(file.read_bytes(), *verifiers)
    except (NoteBroken, ProofBroken) as error:
        print_json({"ok": False, "problem": error.sentence}) if as_json else say(f"It proves nothing: {error.sentence}")
        return 1
    said = found.said
    about = {"kind": str(said.kind), "subject": said.subject, "agent": said.agent, "at": iso(said.at)}
    if as_json:
        print_json({"ok": True, "index": found.index, "size": found.size} | about | {"body": dict(said.body)})
        return 0
    say(f"It holds: statement {found.index:,} of a log that had {found.size:,} leaves at the checkpoint.")
    print_facts([*about.items(), *((name, json.dumps(value)) for name, value in sorted(said.body.items()))])
    say(f"Checked with the key whose fingerprint is {verifiers[-1].fingerprint}")
    return 0


def _read_keys(given: str) -> list[NoteVerifier]:
    """Of one key, or of the file that names all. Raises UsageError."""
    try:
        if not Path(given).is_file():
            return [NoteVerifier.parse(given)]
        return [NoteVerifier.parse(key["vkey"]) for key in json.loads(Path(given).read_bytes())["signing_keys"]]
    except (NoteBroken, OSError, ValueError, KeyError, TypeError, RecursionError):
        raise click.UsageError("--key takes the public key, name+id+base64, or the file that names it.") from None


class FileInTheWay(WhetstoneError):
    """The file is there already, or can't be written."""

    code = "file_in_the_way"


def _write_new(path: Path, body: bytes) -> None:
    """Raises FileInTheWay."""
    try:
        with path.open("xb") as file:
            file.write(body)
    except OSError as error:
        raise FileInTheWay(f"{path} was not written ({error.strerror}).") from None
