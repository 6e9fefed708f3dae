"""Import: a file of JSON Lines, checked and sealed to the master key at once; the worker takes it in."""

from __future__ import annotations

from io import BytesIO

from flask import render_template, request, url_for
from flask.typing import ResponseReturnValue

from app.errors import Invalid
from app.extensions import writing
from app.models import Agent, Intake
from app.models.importing import ImportRefused, parse_lines, read_lines
from app.models.user import ADMIN
from app.views.access import my_agent, needs, pages, viewer
from app.views.answers import done, page
from app.views.shown.agent import ImportsPage

blueprint = pages("imports", __name__)


@page(blueprint, "/agents/<int:agent_id>/imports", "agents/imports.html")
def show(agent_id: int) -> ImportsPage:
    return ImportsPage.load(my_agent(agent_id))


@blueprint.post("/agents/<int:agent_id>/imports")
@needs(ADMIN)
def receive(agent_id: int) -> ResponseReturnValue:
    """Check all of it before anything is written; then only sealed bytes reach the database."""
    agent = my_agent(agent_id)
    actor = viewer().actor
    try:
        sent = _sent()
        count = len(parse_lines(read_lines(BytesIO(sent))))
    except Invalid as error:
        return _refused(agent, error)
    with writing():
        intake = Intake.receive(Agent.lock(agent_id), sent.decode(), by=actor)
    from tasks import intake as queue

    queue.enqueue(intake.id)
    text = f"{count:,} memories are checked and sealed. A worker takes them in now."
    return done(text, to=url_for("imports.show", agent_id=agent_id))


def _sent() -> bytes:
    file = request.files.get("file")
    sent = file.read() if file else b""
    if not sent:
        raise Invalid("No file was chosen, or it is empty. Nothing was imported.")
    return sent


def _refused(agent: Agent, error: Invalid) -> ResponseReturnValue:
    problems = [error.sentence]
    if isinstance(error, ImportRefused):
        more = error.total - len(error.problems)
        problems = [str(problem).capitalize() for problem in error.problems]
        problems += [f"And {more:,} more lines."] if more > 0 else []
    shown = ImportsPage.load(agent, problems=problems)
    return render_template("agents/imports.html", page=shown, json_url=f"{request.path}.json"), 422
