"""`./whetstone keys web`, `enroll` and `dismiss`: whose signatures a worker takes for those of a web process."""

from __future__ import annotations

import os

import click

from app.cli import json_option
from app.cli.common import CommandContext, as_usage, installation_command
from app.cli.printing import print_facts, print_hint, print_json, say
from app.config import load_settings
from app.errors import NotFound
from app.silo.webkey import PinnedInstallation, WebKey
from app.statements.web_keys import dismiss_web_key, enroll_web_key, enrolled_web_keys


@click.command()
@json_option
def web(as_json: bool) -> None:
    """Print the public key of this host's web process, made now if there is none, and the installation it trusts."""
    os.umask(0o077)
    settings = load_settings()
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = WebKey.load_or_make(settings.web_key_path).verifier.public.hex()
    pinned = PinnedInstallation.load(settings.pinned_path) if settings.pinned_path.exists() else None
    if as_json:
        known = None if pinned is None else {"id": pinned.installation, "fingerprint": pinned.verifier.fingerprint}
        print_json({"key": key, "installation": known})
        return
    say(f"The public key of the web process of {settings.data}")
    print_facts(
        [
            ("key", key),
            ("trusts", pinned.installation if pinned else "what the database says when it first starts"),
            ("fingerprint", pinned.verifier.fingerprint if pinned else None),
        ]
    )
    print_hint(f"keys enroll {key}", "On the worker's host, let it take what this process signs")
    print_hint("keys check", "There, too: compare the fingerprint")


@click.command()
@click.argument("key", required=False)
@click.option("--list", "listed", is_flag=True, help="Print the keys that are enrolled.")
@installation_command(account=False)
def enroll(context: CommandContext, key: str | None, listed: bool) -> None:
    """Let this host's worker take what the web process with this public KEY signs; `keys web` prints it there."""
    if bool(key) == listed:
        raise click.UsageError("Give the KEY that `./whetstone keys web` prints on the web process's host; or --list.")
    if key is None:
        _list_keys(context)
        return
    with as_usage():
        is_new = enroll_web_key(key)
    if context.as_json:
        print_json({"key": key.strip().lower(), "new": is_new})
        return
    say("Enrolled: the worker takes what this web process signs." if is_new else "It was enrolled already.")


@click.command()
@click.argument("key")
@installation_command(account=False)
def dismiss(context: CommandContext, key: str) -> None:
    """Let this host's worker take nothing more that is signed with this KEY; what it has settled stays."""
    with as_usage():
        was_enrolled = dismiss_web_key(key)
    if not was_enrolled:
        raise NotFound("No web process with this key is enrolled: `./whetstone keys enroll --list`.")
    print_json({"key": key.strip().lower()}) if context.as_json else say("Dismissed: what it signs is refused now.")


def _list_keys(context: CommandContext) -> None:
    enrolled = [each.public.hex() for each in enrolled_web_keys()]
    if context.as_json:
        print_json({"keys": enrolled})
        return
    for key in enrolled:
        say(key)
    if not enrolled:
        say("No web process is enrolled: what any of them signs is refused.")
