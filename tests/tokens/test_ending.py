"""A revocation is final: it ends what the token let happen, and what is written after opens to no key that it had."""

from __future__ import annotations

import pytest

from app.asking.replies import ConsentAnswer
from app.errors import NotFound
from app.extensions import db, writing
from app.grants.request import WantedException, decide_grant, request_access
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.keys.bearer import Bearer, authenticate
from app.keys.provision import find_unprovisioned, provision_keys
from app.keys.tokens import EndedToken, NotForThisToken, issue_by_token, revoke_token
from app.models import COMMAND_LINE, AccessGrant, Action, Agent, GrantCategory, User
from app.models.memory_text import MemoryText, texts_of
from app.models.user import ADMIN
from app.silo import SealBroken, parse_token
from tests.support.clock import FakeClock
from tests.support.factories import make_agent, make_user, remember
from tests.support.rows import entries_of
from tests.tokens.conftest import held, opens, presented

YES = ConsentAnswer(granted=True)


def make(agent: Agent, bearer: Bearer, *scopes: str) -> tuple[str, Bearer]:
    """A token that another one makes."""
    with writing():
        secret, _ = issue_by_token(Agent.lock(agent.id), bearer, name="made", scopes=scopes or bearer.scopes)
    provision_keys(agent.id)
    return secret, presented(secret)


def revoke(agent: Agent, bearer: Bearer, *, signer: Bearer | None = None) -> EndedToken:
    with writing():
        return revoke_token(Agent.lock(agent.id), bearer.public_id, by=COMMAND_LINE, signer=signer)


def live(*secrets: str) -> list[bool]:
    return [authenticate(secret) is not None for secret in secrets]


def look(agent: Agent, user: User, bearer: Bearer, minutes: int = 15) -> AccessGrant:
    """An exception that a token granted."""
    wish = WantedException(GrantCategory.DEBUGGING, "To see.", minutes)
    grant = request_access(agent.id, wish, for_user=user, by=user.actor)
    return decide_grant(grant.id, YES, agent_id=agent.id, by=agent.as_actor, keys=None, bearer=bearer)


def test_it_ends_every_token_that_it_let_be_made_and_those_that_they_made(agent: Agent) -> None:
    (first, one), (other, _) = held(agent), held(agent)
    second, two = make(agent, one)
    third, three = make(agent, two, "read")

    ended = revoke(agent, one)
    assert ended.tokens == [one.public_id, two.public_id, three.public_id]
    assert live(first, second, third, other) == [False, False, False, True]
    assert [opens(agent, each) for each in (first, second, third, other)] == [False, False, False, True]
    assert len(entries_of(agent, Action.TOKEN_REVOKE)) == 3
    assert ended.with_it == "2 tokens"
    assert verify().ok


def test_it_ends_the_exceptions_that_it_granted_and_no_other(agent: Agent, ann: User, bob: User) -> None:
    (_, one), (_, other) = held(agent), held(agent)
    _, child = make(agent, one)
    cleo = make_user("cleo@example.org", ADMIN)
    mine, made, theirs = look(agent, ann, one), look(agent, cleo, child), look(agent, bob, other)

    ended = revoke(agent, one)
    assert sorted(ended.exceptions) == sorted([mine.id, made.id])
    db.session.rollback()
    states = {grant.id: grant.status for grant in db.session.scalars(db.select(AccessGrant))}
    assert states == {mine.id: "revoked", made.id: "revoked", theirs.id: "granted"}
    entries = entries_of(agent, Action.ACCESS_REVOKED)
    assert [entry.data["why"] for entry in entries] == ["the token that decided on it was revoked"] * 2
    assert verify().ok


def test_what_is_saved_after_opens_to_no_key_that_the_token_had(agent: Agent) -> None:
    (secret, one), (other, _) = held(agent), held(agent)
    copied = one.open_keys()
    revoke(agent, one)
    assert find_unprovisioned() == []
    provision_keys(agent.id)
    (number,) = remember(agent, "Bob likes rum.")

    keys = open_keys(agent)
    assert keys.current_version == 2
    assert copied.versions == [1]
    parsed = parse_token(other)
    assert parsed is not None
    assert open_keys(agent, parsed[1]).versions == [1, 2]
    assert not opens(agent, secret)
    text = texts_of(MemoryText.memory_id == number)
    assert [keys.reveal_memory(number, each) for each in text.values()] == ["Bob likes rum."]
    with pytest.raises(SealBroken):
        [copied.reveal_memory(number, each) for each in text.values()]
    (entry,) = entries_of(agent, Action.AGENT_KEY_ROTATE)
    assert entry.data["revoked"] == [one.public_id]
    assert verify().ok


def test_one_new_key_serves_all_revocations_before_it(agent: Agent) -> None:
    for _ in range(3):
        revoke(agent, held(agent)[1])
    provision_keys(agent.id)
    provision_keys(agent.id)
    assert open_keys(agent).current_version == len(entries_of(agent, Action.AGENT_KEY_ROTATE)) + 1
    before = open_keys(agent).current_version
    provision_keys(agent.id)
    assert open_keys(agent).current_version == before


def test_a_lost_message_is_found_a_minute_later(agent: Agent, clock: FakeClock) -> None:
    revoke(agent, held(agent)[1])
    clock.advance(seconds=61)
    assert find_unprovisioned() == [agent.id]
    provision_keys(agent.id)
    assert find_unprovisioned() == []


def test_a_revoked_token_stays_revoked_and_ends_nothing_twice(agent: Agent) -> None:
    _, one = held(agent)
    assert revoke(agent, one).was_live
    again = revoke(agent, one)
    assert (again.was_live, again.tokens, again.exceptions) == (False, (), ())
    assert len(entries_of(agent, Action.TOKEN_REVOKE)) == 1


def test_an_agent_replaces_its_first_token_with_two_calls_and_keeps_what_it_made(agent: Agent) -> None:
    """It makes a new one, comes with that, and ends the first: which ends what else the first had made."""
    first, one = held(agent)
    thief, _ = make(agent, one)
    mine, new = make(agent, one)
    revoke(agent, one, signer=new)
    provision_keys(agent.id)

    assert live(first, thief, mine) == [False, False, True]
    assert opens(agent, mine)


def test_a_token_may_end_itself_with_all_that_it_made(agent: Agent) -> None:
    secret, one = held(agent)
    child, _ = make(agent, one)
    revoke(agent, one, signer=one)
    assert live(secret, child) == [False, False]


@pytest.mark.parametrize("scopes", [("read",), ("read", "write", "author")])
def test_a_token_without_decide_makes_and_ends_none(agent: Agent, scopes: tuple[str, ...]) -> None:
    _, mine = held(agent, *scopes)
    _, other = held(agent)
    with pytest.raises(NotForThisToken):
        revoke(agent, other, signer=mine)
    with pytest.raises(NotForThisToken):
        make(agent, mine, "read")


def test_a_token_makes_none_that_may_more_than_itself(agent: Agent) -> None:
    _, mine = held(agent, "read", "decide")
    with pytest.raises(NotForThisToken, match="lacks author"):
        make(agent, mine, "read", "author")
    make(agent, mine, "decide")


def test_a_token_that_was_revoked_since_it_came_decides_nothing(agent: Agent, ann: User) -> None:
    _, mine = held(agent)
    _, other = held(agent)
    revoke(agent, mine)
    with pytest.raises(NotForThisToken, match="revoked meanwhile"):
        make(agent, mine)
    with pytest.raises(NotForThisToken):
        revoke(agent, other, signer=mine)
    with pytest.raises(NotForThisToken):
        look(agent, ann, mine)


def test_another_agent_s_token_ends_nothing_here(agent: Agent) -> None:
    wren = make_agent("wren")
    _, theirs = held(wren)
    _, mine = held(agent)
    with pytest.raises(NotForThisToken):
        revoke(agent, mine, signer=theirs)
    with pytest.raises(NotFound):
        revoke(wren, mine)
