"""Coming and going: an agent takes all of itself along as a bundle, and brings in memories from it or elsewhere."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field
from sqlalchemy import select

from app.api.caller import Caller
from app.api.operation import UUID_FORM, PathParameter, RequestBody, operation
from app.api.settings import write_setting
from app.authoring.fields import check_setting
from app.errors import NotFound
from app.exchange import bundle
from app.exchange.formats import read_file
from app.exchange.parsed import ImportFormat
from app.exchange.taking_in import receive_file
from app.extensions import db
from app.models import Intake
from app.models.intake import IMPORT
from app.models.key import Scope
from app.shapes.memory import OneImport
from app.shapes.response import ResponseModel
from tasks import intake as queue

ID = PathParameter("import_id", str, "The import's UUID.", UUID_FORM)


class NewImport(RequestBody):
    data: Annotated[str, Field(min_length=1, description="The file's text.")]
    format: Annotated[
        Literal["auto", "bundle", "jsonl", "af", "mem0", "text"],
        Field(
            description="bundle: yours. jsonl: JSON Lines. af: a Letta agent file. mem0: its export. text: one "
            "memory a line; it has to be named. auto tells the others apart."
        ),
    ] = "auto"
    with_settings: Annotated[
        bool, Field(description="Of a bundle: write your settings too. It needs the scope author.")
    ] = False


class Bundle(ResponseModel):
    bundle: str = Field(description="JSON: your settings and all your active memories. import_memories takes it back.")


def _bundle_pieces(caller: Caller) -> Iterator[str]:
    """Raises KeysNotReady before there is a first one, so that a refusal is still an answer."""
    return _while_live(caller, bundle.export_bundle(caller.agent(), caller.keys))


def _while_live(caller: Caller, found: Iterator[str]) -> Iterator[str]:
    """It breaks off, so that nobody takes it for whole, once the token is revoked. Raises Unauthorized then."""
    for number, piece in enumerate(found):
        if number % bundle.BATCH == 0:
            caller.check_still_live()
        yield piece


@operation("GET", "/export", Scope.READ, streams=_bundle_pieces)
def export_bundle(caller: Caller) -> Bundle:
    """All of you to take along: your settings and your active memories with their text, as one JSON document."""
    return Bundle(bundle="".join(_bundle_pieces(caller)))


@operation("POST", "/imports", Scope.WRITE, statuses=(202,), most_bytes=64_000_000)
def import_memories(caller: Caller, given: NewImport) -> OneImport:
    """Bring memories in from a bundle of yours or from elsewhere: all of them or none, in the background. What you have
    already is not written twice, and none becomes constitutional by it. get_import says what came of it.
    """
    if given.with_settings:
        caller.check(Scope.AUTHOR)
    by, format_ = caller.actor(), None if given.format == "auto" else ImportFormat(given.format)
    data = given.data.encode("utf-8", "surrogatepass")
    settings = _checked_settings(data, format_) if given.with_settings else {}
    # refused whole, before a setting is written
    received = receive_file(caller.agent_id, data, by=by, format=format_, signer=caller.signer)
    queue.enqueue(received.intake_id)
    for field, value in settings.items():
        write_setting(caller, field, value)
    left_out = {what: count for what, count in received.parsed.left_out.items() if not settings or what != "settings"}
    intake = _find_own_import(caller, received.intake_id)
    return OneImport.of(intake, memories=received.memories, left_out=left_out, settings=list(settings))


@operation("GET", "/imports/{import_id}", Scope.READ, at=ID)
def get_import(caller: Caller, import_id: str) -> OneImport:
    """What came of an import of yours."""
    return OneImport.of(_find_own_import(caller, import_id))


def _checked_settings(data: bytes, format_: ImportFormat | None) -> dict[str, str | int | None]:
    """The settings of a bundle; none of other files. Raises as `receive_file` and `author_setting` do."""
    settings = dict(read_file(data, format=format_).settings)
    for field, value in settings.items():
        check_setting(field, value)
    return settings


def _find_own_import(caller: Caller, import_id: str) -> Intake:
    mine = (Intake.id == import_id, Intake.agent_id == caller.agent_id, Intake.kind == IMPORT)
    intake = db.session.scalar(select(Intake).where(*mine).execution_options(populate_existing=True))
    if intake is None or intake.actor_kind != "agent":
        raise NotFound("You have no such import.")
    return intake
