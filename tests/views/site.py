"""Every route of the pages, with addresses that lead somewhere and forms that are taken: for sweeps over all of them.

A route with a placeholder, or a POST, that is not described here fails the sweeps and is named.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from itertools import count
from typing import Any

from flask import Flask
from werkzeug.routing import Rule

from app.authoring.fields import list_versions
from app.extensions import db, writing
from app.grants.request import WantedException, request_access
from app.history.plan import Target as Undo
from app.history.undo import roll_back
from app.keys.tokens import issue_token
from app.models import (
    COMMAND_LINE,
    WORKER,
    AccessGrant,
    Account,
    Agent,
    ChannelType,
    GrantCategory,
    Memory,
    NoticeChannel,
    OneTimeLink,
    SettingProposal,
    SettingsRequest,
    TokenRequest,
    User,
)
from app.models.user import ADMIN
from app.views.assets import load_assets
from tests.api.telling import prove_statement
from tests.support.factories import HOME, begin, make_agent, make_user, remember

PUBLIC = {
    "assets.show",
    "security.static",
    "health.healthz",
    "health.readyz",
    "health.metrics",
    "well_known.installation",
}
"""What anybody may ask for."""

SIGN_IN = {"security.login", "security.logout", "security.verify", "welcome.show", "welcome.accept"} | {
    "second_step.show",
    "second_step.check",
    *("passkeys.ask", "passkeys.sign_in", "passkeys.ask_second", "passkeys.check_second"),
}
"""Flask-Security's own pages, and what a one-time link opens (test_one_time_links.py)."""

CONTENT = {"exceptions.ledger", "exceptions.ledger_json", "exceptions.history", "exceptions.history_json"}
"""What shows content to the one user of a live exception, and writes a receipt."""

Form = Callable[["Subject"], dict[str, Any]]

_numbers = map("{:05}".format, count(1))
"""As wide on the first use as on the thousandth: golden files hold tables."""


NOBODY = "00000000-0000-4000-8000-000000000000"


@dataclass
class Subject:
    """Something of each kind that a route can name, all of one agent: `values` by the placeholder's name.

    `changed_id` is the entry of a change of its budget.
    """

    agent: Agent
    values: dict[str, str]
    constitutional_id: str = ""
    dismissed_id: str = NOBODY
    changed_id: str = "987654321"

    def path(self, rule: Rule, **others: str) -> str:
        """The rule's address with these values. Fails for a placeholder that nobody described."""
        values = self.values | others
        unknown = rule.arguments - set(values)
        assert not unknown, f"{rule.rule}: tests/views/site.py knows no value for {sorted(unknown)}"
        built = rule.build({name: values[name] for name in rule.arguments})
        assert built is not None, rule
        return built[1]


def make_subject(says: str = "", **fields: Any) -> Subject:
    """An agent of the first account with a short past: saved, refined, rolled back, asked whether somebody may look.

    `says`: what stands before everything that it remembers. `fields` are settings of the agent.
    """
    agent = make_agent(f"subject {next(_numbers)}", **fields)
    texts = ("Ann likes tea with milk.", "Bob likes rum.", "Cleo likes ink.")
    first, second, _ = remember(agent, *(says + text for text in texts))
    (constitutional,) = remember(agent, f"{says}Dora keeps her word.", constitutional=True)
    (saved,) = remember(agent, f"{says}Emil was here.")
    (taken_back,) = remember(agent, f"{says}Fay was not.")
    rollback = roll_back(Undo.entry(_entry_of(taken_back)), by=COMMAND_LINE).rollback
    assert rollback is not None
    run = begin(agent)
    run.tool.execute("update", id=first, content=f"{says}Ann likes tea.")
    run.tool.execute("complete", summary=f"{says}One was wordy.", note_to_admins="All is well.")
    values = {
        "agent_id": str(agent.id),
        "memory_id": str(second),
        "refinement_id": run.refinement.id,
        "rollback_id": rollback.id,
        "entry_id": str(_entry_of(saved)),
        "exception_id": _pending(agent).id,
        "token_id": _live_token(agent),
        "request_id": _token_request(agent),
        "proposal_id": _held(agent, "system_prompt"),
        "change_id": _asked_change(agent),
        "item_id": str(run.reload().notes[0].id),
        "filename": "app.js",
        "asset": load_assets()["whetstone.js"].address,
        "receipt_id": prove_statement(agent),
        "act_id": NOBODY,
        "secret": "nothing",
        "channel_id": _channel(agent),
        "account_id": str(HOME),
        "passkey_id": "987654321",
    } | _person()
    dismissed = _held(agent, "refinement_prompt", dismissed=True)
    return Subject(agent, values, str(constitutional), dismissed, _change_of_budget(agent))


NOWHERE = {
    "agent_id": "987654321",
    "memory_id": "987654321",
    "refinement_id": NOBODY,
    "rollback_id": NOBODY,
    "entry_id": "987654321",
    "exception_id": NOBODY,
    "token_id": "0000000000000000",
    "request_id": NOBODY,
    "proposal_id": NOBODY,
    "change_id": NOBODY,
    "item_id": "987654321",
    "filename": "nowhere.js",
    "receipt_id": "987654321",
    "channel_id": NOBODY,
    "account_id": "987654321",
    "act_id": NOBODY,
    "user_id": "987654321",
    "link_id": "987654321",
    "passkey_id": "987654321",
    "secret": "nothing",
}
"""Values of the right form that name nothing."""


@dataclass(frozen=True)
class Act:
    """How a POST is done: the form that it takes, what its address names, and how it answers then."""

    form: Form = lambda _: {}
    named: Callable[[Subject], Mapping[str, str]] = lambda _: {}
    status: frozenset[int] = frozenset({200, 201, 302, 303})


def _agent_form(subject: Subject) -> dict[str, Any]:
    return {"name": f"new {next(_numbers)}", "model_id": "whetstone/offline", "core_token_budget": "5000"}


def _chosen(subject: Subject) -> dict[str, Any]:
    return {"agent": subject.values["agent_id"]}


def _chosen_refinement(subject: Subject) -> dict[str, Any]:
    return {"refinement": subject.values["refinement_id"]}


def _its_name(subject: Subject) -> dict[str, Any]:
    return {"name": subject.agent.name}


def _file(subject: Subject) -> dict[str, Any]:
    return {"file": (BytesIO(b'{"content": "Gus likes sleet."}\n'), "memories.jsonl")}


def _wish(subject: Subject) -> dict[str, Any]:
    return {"category": "debugging", "purpose": "It repeats itself.", "minutes": "15", "scope": "ledger"}


def _token(subject: Subject) -> dict[str, Any]:
    return {"name": f"token {next(_numbers)}", "scope": ["read", "write"]}


def _changed(subject: Subject) -> dict[str, Any]:
    return {"entry": subject.changed_id, "field": "core_token_budget"}


def _its_number(subject: Subject) -> dict[str, Any]:
    return {"number": subject.values["memory_id"], "reason": "It was never meant to be kept."}


def _new_password(subject: Subject) -> dict[str, Any]:
    """Of somebody who had another one: refused."""
    return {"old": "not the password", "password": "a staple and a battery", "password_again": "a staple and a battery"}


def _address(subject: Subject) -> dict[str, Any]:
    return {"email": f"guest-{next(_numbers)}@example.org", "role": "auditor"}


def _new_account(subject: Subject) -> dict[str, Any]:
    number = next(_numbers)
    return {"name": f"Account {number}", "owner": f"owner-{number}@example.org"}


def _entering(subject: Subject) -> dict[str, Any]:
    """Refused: it is one's own account. tests/views/test_entering.py enters another one."""
    return {"reason": "A question of theirs.", "my_password": "not the password"}


def _new_channel(subject: Subject) -> dict[str, Any]:
    """Refused: there is no mail server, and nothing outside is looked up here."""
    return {"type": "email", "name": "Ann", "to": "ann@example.org", "kind": ["failed"]}


ACTS: dict[str, Act] = {
    "house.change_password": Act(_new_password, status=frozenset({422})),
    "house.set_up_authenticator": Act(status=frozenset({422})),
    "house.confirm_authenticator": Act(status=frozenset({409})),
    "house.remove_authenticator": Act(status=frozenset({422})),
    "house.renew_recovery_codes": Act(status=frozenset({422})),
    "house.ask_for_passkey": Act(lambda _: {"passkey_name": "phone"}, status=frozenset({422})),
    "house.add_passkey": Act(status=frozenset({409})),
    "house.remove_passkey": Act(status=frozenset({404})),
    "house.take_off_second_factor": Act(status=frozenset({422})),
    "house.set_time_zone": Act(lambda _: {"time_zone": "Europe/Lisbon"}),
    "house.rename": Act(lambda _: {"name": f"House {next(_numbers)}"}),
    "house.end_sessions": Act(),
    "house.invite": Act(_address),
    "house.revoke_link": Act(),
    "house.change_role": Act(lambda _: {"role": "auditor"}),
    "house.make_password_link": Act(),
    "house.deactivate": Act(),
    "house.reactivate": Act(),
    "house.end_tokens": Act(status=frozenset({409})),
    "accounts.create": Act(_new_account),
    "accounts.change_limits": Act(lambda _: {"max_agents": "100000"}),
    "accounts.enter": Act(_entering, status=frozenset({409})),
    "accounts.leave": Act(),
    "attention.mark_seen": Act(),
    "attention.mark_unseen": Act(),
    "attention.mark_matching_seen": Act(),
    "attention.unsee_matching": Act(lambda _: {"first": "2026-11-16T04:00:00Z", "last": "2026-11-16T04:00:01Z"}),
    "agents.create": Act(_agent_form),
    "agents.refine": Act(),
    "agents.pause": Act(),
    "agents.resume": Act(),
    "agents.show_selection": Act(_chosen),
    "agents.pause_many": Act(_chosen),
    "agents.resume_many": Act(_chosen),
    "agents.refine_many": Act(_chosen),
    "agents.undo_many": Act(status=frozenset({404})),
    "settings.change": Act(_agent_form),
    "settings.revert": Act(_changed),
    "settings.apply": Act(status=frozenset({409})),
    "settings.withdraw": Act(),
    "settings.test_model": Act(),
    "settings.dismiss": Act(),
    "settings.hold": Act(named=lambda subject: {"proposal_id": subject.dismissed_id}),
    "tokens.create": Act(_token, status=frozenset({409})),
    "tokens.rotate": Act(status=frozenset({409})),
    "tokens.revoke": Act(),
    "tokens.withdraw": Act(),
    "imports.receive": Act(_file),
    "memories.protect": Act(),
    "memories.erase": Act(_its_number),
    "memories.release": Act(named=lambda subject: {"memory_id": subject.constitutional_id}),
    "refinements.stop": Act(),
    "refinements.show_selection": Act(_chosen_refinement),
    "refinements.retry_matching": Act(_chosen_refinement),
    "refinements.mark_matching_seen": Act(_chosen_refinement),
    "refinements.roll_back_matching": Act(_chosen_refinement),
    "refinements.unsee_matching": Act(status=frozenset({422})),
    "rollbacks.undo_refinement": Act(),
    "rollbacks.undo_rewind": Act(),
    "rollbacks.undo_entry": Act(),
    "rollbacks.undo_rollback": Act(),
    "exceptions.ask": Act(_wish),
    "exceptions.revoke": Act(),
    "forget.forget": Act(_its_name),
    "house.add_channel": Act(_new_channel, status=frozenset({422})),
    "house.test_channel": Act(),
    "house.choose_kinds": Act(lambda _: {"kind": ["failed"]}),
    "house.pause_channel": Act(),
    "house.resume_channel": Act(),
    "house.remove_channel": Act(),
    "house.restore_channel": Act(),
    "overview.make_demo": Act(status=frozenset({409})),
}
"""By endpoint."""

OWN = {
    "house.change_password",
    "house.set_time_zone",
    "house.end_sessions",
    "house.set_up_authenticator",
    "house.confirm_authenticator",
    "house.remove_authenticator",
    "house.renew_recovery_codes",
    "accounts.leave",
    "house.ask_for_passkey",
    "house.add_passkey",
    "house.remove_passkey",
}
"""What everybody may do, to themselves alone."""

FINAL = {"forget.forget", "memories.erase"}

UNTOUCHED = FINAL | {
    "agents.refine_many",
    "settings.revert",
    "memories.release",
    "refinements.roll_back_matching",
    "rollbacks.undo_refinement",
    "rollbacks.undo_rewind",
}
"""What finds nothing to do on a subject on which every other act was done. Others find more: what is paused resumes."""


def act_of(rule: Rule) -> Act:
    assert rule.endpoint in ACTS, f"{rule.rule}: tests/views/site.py knows no form for {rule.endpoint}"
    return ACTS[rule.endpoint]


def routes(web: Flask, method: str, *, without: frozenset[str] | set[str] = frozenset()) -> list[Rule]:
    """All rules that answer a method, but for some endpoints. After the last of them nothing else can be done."""
    rules = [rule for rule in _pages(web) if method in (rule.methods or ())]
    return sorted((rule for rule in rules if rule.endpoint not in without), key=lambda rule: rule.endpoint in FINAL)


def _pages(web: Flask) -> list[Rule]:
    """All but the agents' door, which no session opens: tests/api goes through it."""
    return [rule for rule in web.url_map.iter_rules() if not rule.endpoint.startswith("api.")]


def _pending(agent: Agent) -> AccessGrant:
    """An exception of the first admin, whose agent was not asked yet."""
    user = db.session.get_one(User, 1)
    wish = WantedException(GrantCategory.DEBUGGING, "It repeats itself.", 15)
    return request_access(agent.id, wish, for_user=user, by=user.actor)


def _person() -> dict[str, str]:
    """The ids of a further admin of the first account, and of an invitation to it."""
    person = make_user(f"person-{next(_numbers)}@example.org", ADMIN)
    with writing():
        link, _ = OneTimeLink.invite(Account.lock(HOME), f"guest-{next(_numbers)}@example.org", ADMIN, by=COMMAND_LINE)
    return {"user_id": str(person.id), "link_id": str(link.id)}


def _channel(agent: Agent) -> str:
    """One of its account, by e-mail, that tells of the latch alone: made once, since an account may have few."""
    with writing():
        account = Account.lock(agent.account_id)
        for there in NoticeChannel.of_account(agent.account_id):
            if there.name == "night watcher" and there.is_active:
                return there.id
        told = {"name": "night watcher", "shown": "ann@example.org", "kinds": ["latch"]}
        user = db.session.get_one(User, 1)
        made = NoticeChannel.create(account, ChannelType.EMAIL, by=user.actor, **told)
        made.record_creation(account, by=user.actor)
    return made.id


def _live_token(agent: Agent) -> str:
    """Its public id."""
    with writing():
        token = issue_token(Agent.lock(agent.id), by=COMMAND_LINE)
    return token.split("_")[1]


def _token_request(agent: Agent) -> str:
    """The id of a request of the first admin, that the agent was not asked about yet."""
    user = db.session.get_one(User, 1)
    with writing():
        made, _ = TokenRequest.make(Agent.lock(agent.id), user, name="laptop", scopes=["read"], by=user.actor)
    return made.id


def _held(agent: Agent, field: str, *, dismissed: bool = False) -> str:
    """What the agent wrote for itself, held for an admin; or dismissed by one."""
    with writing():
        locked = Agent.lock(agent.id)
        made = SettingProposal.make(locked, field, "Be gentle.", by=locked.as_actor)
        made.hold(locked, by=WORKER, why="The safety model says UNSAFE.")
        if dismissed:
            made.dismiss(locked, by=COMMAND_LINE)
    return made.id


def _asked_change(agent: Agent) -> str:
    """What the first admin wants to change, and the agent was not asked yet."""
    user = db.session.get_one(User, 1)
    with writing():
        locked = Agent.lock(agent.id)
        wanted = {"reflection_prompt": "Keep what rhymes."}
        return SettingsRequest.make(locked, wanted, user=user, by=user.actor, about={}).id


def _change_of_budget(agent: Agent) -> str:
    """The id of its entry."""
    with writing():
        Agent.lock(agent.id).change(by=COMMAND_LINE, core_token_budget=4000)
    return str(list_versions(agent, "core_token_budget", limit=1)[0].entry)


def _entry_of(memory_id: int) -> int:
    entry_id = db.session.get_one(Memory, memory_id).entry_id
    assert entry_id is not None
    return entry_id
