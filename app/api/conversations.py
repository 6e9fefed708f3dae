"""Conversations: an agent hands one in, and a worker lets its own model say what of it is to be remembered."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import (
    UUID_FORM,
    NoParameters,
    Operation,
    PathParameter,
    RequestBody,
    RequestResult,
    ResponseModel,
)
from app.models.key import Scope
from app.reflection.conversation import as_json, find, hand_in
from tasks import reflection as queue

ID = PathParameter("conversation_id", str, "The conversation's UUID.", UUID_FORM)


class NewConversation(RequestBody):
    messages: Annotated[
        list[dict[str, Any]],
        Field(
            min_length=1,
            max_length=500,
            description='The transcript, oldest first: {"role": "user"|"assistant"|"system"|"tool", "content": "…"}.',
            json_schema_extra={
                "items": {
                    "type": "object",
                    "required": ["role", "content"],
                    "properties": {
                        "role": {"enum": ["user", "assistant", "system", "tool"]},
                        "content": {"type": "string"},
                    },
                }
            },
        ),
    ]


class Conversation(ResponseModel):
    id: str
    status: str = Field(description="waiting, taken (its memories are saved) or failed (nothing was created).")
    created_at: str | None
    taken_at: str | None
    core: int | None = Field(description="Core memories that were saved.")
    journal: int | None = Field(description="Journal entries that were saved.")
    duplicates: int | None = Field(description="Core memories that you had already.")
    error: str | None


def hand_over(caller: Caller, given: NewConversation) -> RequestResult:
    intake = hand_in(caller.agent_id, given.messages, caller.actor())
    queue.enqueue(intake.id)
    return RequestResult(Conversation(**as_json(intake)), 202)


def show(caller: Caller, conversation_id: str, _: NoParameters) -> Conversation:
    return Conversation(**as_json(find(caller.agent_id, conversation_id)))


OPERATIONS = (
    Operation(
        "hand_in_conversation", "POST", "/conversations", Scope.WRITE,
        "Hand in a conversation that you had. Your own model reads it in the background, under your reflection_prompt, "
        "and keeps a few journal entries and core memories of it. The transcript itself is not kept. get_conversation "
        "says what came of it.",
        hand_over, Conversation, NewConversation, statuses=(202,), most_bytes=4_000_000,
    ),
    Operation(
        "get_conversation", "GET", "/conversations/{conversation_id}", Scope.READ,
        "What came of a conversation that you handed in: whether it was read, and how many memories were kept.",
        show, Conversation, at=ID,
    ),
)  # fmt: skip
