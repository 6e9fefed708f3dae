"""In and out: files of memories, checked and sealed to the master key at once; and the blind record of them."""

from __future__ import annotations

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid
from app.exchange.blind import blind_rows
from app.exchange.draft import ImportRefused
from app.exchange.parsed import ImportFormat, left_out_words
from app.exchange.taking_in import Received, receive_file
from app.models import Agent
from app.values.plural import count_nouns
from app.views.access import my_agent, post_act, signed_in_pages, viewer
from app.views.answers import answer_act, page
from app.views.export import JSON_LINES, json_lines, send_pieces
from app.views.shown.agent import ImportsPage
from tasks import intake as queue

blueprint = signed_in_pages("imports", __name__)
blueprint.add_app_template_filter(left_out_words, "left_out_words")


@page(blueprint, "/agents/<int:agent_id>/imports", "agents/imports.html")
def show(agent_id: int) -> ImportsPage:
    return ImportsPage(my_agent(agent_id))


@post_act(blueprint, "/agents/<int:agent_id>/imports")
def receive(agent_id: int) -> ResponseReturnValue:
    """Check all of it before anything is written; then only sealed bytes reach the database."""
    agent = my_agent(agent_id)
    actor = viewer().actor
    try:
        name, sent = _read_upload()
        received = receive_file(agent_id, sent, by=actor, name=name, format=_read_format())
    except Invalid as error:
        return _render_refusal(agent, error)
    queue.enqueue(received.intake_id)
    return answer_act(_describe_import(received), to=url_for("imports.show", agent_id=agent_id))


@blueprint.get("/agents/<int:agent_id>/memories.jsonl")
def export(agent_id: int) -> ResponseReturnValue:
    """The blind record; `?discarded=1` with the soft-deleted ones. The same lines as `./whetstone memories export`."""
    agent = my_agent(agent_id)
    rows = blind_rows(agent.id, discarded=request.args.get("discarded") == "1")
    return send_pieces(json_lines(rows), f"memories-agent-{agent.id}", JSON_LINES)


def _read_upload() -> tuple[str, bytes]:
    file = request.files.get("file")
    sent = file.read() if file else b""
    if file is None or not sent:
        raise Invalid("No file was chosen, or it is empty.", "Nothing was imported.")
    return file.filename or "", sent


def _read_format() -> ImportFormat | None:
    """What the form says that the file is; None to recognise it."""
    chosen = request.form.get("format", "")
    if chosen not in ("", *ImportFormat):
        raise Invalid("There is no such format.", "Nothing was imported.")
    return ImportFormat(chosen) if chosen else None


def _describe_import(received: Received) -> str:
    parsed = received.parsed
    number = count_nouns(received.memories, "memory") + (" is" if received.memories == 1 else " are")
    said = [f"Detected format: {parsed.format.words}. {number} checked and sealed.", *parsed.notes]
    return " ".join([*said, "A worker takes them in now."])


def _render_refusal(agent: Agent, error: Invalid) -> ResponseReturnValue:
    problems = [error.sentence]
    if isinstance(error, ImportRefused):
        more = error.total - len(error.problems)
        problems = [f"{text[:1].upper()}{text[1:]}" for text in map(str, error.problems)]
        problems += [f"And {count_nouns(more, f'more {error.noun}')}."] if more > 0 else []
    shown = ImportsPage(agent, problems=problems)
    return render_template("agents/imports.html", page=shown, json_url=f"{request.path}.json"), 422
