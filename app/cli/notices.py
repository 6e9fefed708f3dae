"""`./whetstone notices`: the channels for notices, a test of one, and the log of deliveries."""

from __future__ import annotations

import click

from app.cli.common import CommandContext, installation_command
from app.cli.printing import print_hint, print_json, print_table, say
from app.errors import NotFound, Unavailable
from app.extensions import db, writing
from app.models import Account, Notice, NoticeAttempt, NoticeChannel
from app.notices.outbox import deliver
from app.shapes.notice import AttemptShape, ChannelShape

CHANNELS = ("ID", "NAME", "TYPE", "TO", "TELLS OF", "WAITING", "STATE")
ATTEMPTS = ("AT (UTC)", "CHANNEL", "ABOUT", "COUNT", "ATTEMPT", "RESULT", "SECONDS", "MESSAGE")


@click.group()
def notices() -> None:
    """List who is told of what while nobody looks, test it, and read the log. Channels are added in the browser."""


@notices.command("list")
@installation_command(with_key=False)
def list_(context: CommandContext) -> None:
    """List the channels of the account."""
    account = context.find_account()
    found, waiting = NoticeChannel.of_account(account.id), Notice.count_waiting(account.id)
    if context.as_json:
        print_json([ChannelShape.of(each, waiting=waiting.get(each.id, 0)).as_json() for each in found])
    elif found:
        print_table(CHANNELS, [_channel_row(each, waiting.get(each.id, 0)) for each in found])
        print_hint(f"notices test ID{context.account_argument}", "Send a test")
    else:
        say("Nobody is told of anything. Add a channel in the browser: Settings, Notices.")


@notices.command()
@click.argument("channel", metavar="CHANNEL")
@installation_command()
def test(context: CommandContext, channel: str) -> int:
    """Send a test to CHANNEL, its name or its id or the beginning of that, from this machine, now."""
    account = context.find_account()
    found = _find_channel(account, channel)
    with writing():
        Account.lock(account.id)
        number = _flushed(Notice.put_test(NoticeChannel.lock(found.id)))
    outcome = deliver(number)
    if outcome is None:
        raise Unavailable("A worker was quicker: `./whetstone notices log` says how it went.")
    if context.as_json:
        print_json({"channel": found.name, "ok": outcome.ok, "status": outcome.status, "reason": outcome.words})
    else:
        status = f" ({outcome.status})" if outcome.status else ""
        say(f"{found.name}: {outcome.words}{status}.")
    return 0 if outcome.ok else 1


@notices.command()
@click.option("--limit", type=click.IntRange(1, 10_000), default=50, show_default=True, help="The newest so many.")
@installation_command(with_key=False)
def log(context: CommandContext, limit: int) -> None:
    """List each attempt to deliver a message, newest first."""
    newest = NoticeAttempt.newest(context.find_account().id).limit(limit)
    found = [AttemptShape.told(*row) for row in db.session.execute(newest).tuples()]
    if context.as_json:
        print_json([each.as_json() for each in found])
    elif found:
        print_table(ATTEMPTS, [_attempt_row(each) for each in found])
    else:
        say("Nothing was sent yet.")


def _find_channel(account: Account, named: str) -> NoticeChannel:
    for channel in NoticeChannel.of_account(account.id):
        if channel.name == named or (len(named) >= 4 and channel.id.startswith(named)):
            return channel
    raise NotFound(f"There is no channel {named!r}. `./whetstone notices list` names them all.")


def _flushed(notice: Notice) -> int:
    db.session.flush()
    return notice.id


def _channel_row(channel: NoticeChannel, waiting: int) -> list[str | int]:
    state = "paused" if channel.paused_at else "live"
    return [channel.id[:8], channel.name, str(channel.type), channel.shown, ", ".join(channel.kinds), waiting, state]


def _attempt_row(told: AttemptShape) -> list[str | int]:
    result = told.reason if told.status is None else f"{told.reason} ({told.status})"
    at = told.at[:16].replace("T", " ")
    return [at, told.channel, told.kind, told.count, told.number, result, f"{told.seconds:.1f}", told.outcome]
