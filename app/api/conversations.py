"""Conversations: an agent hands one in, and a worker lets its own model say what of it is to be remembered."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import UUID_FORM, NoParameters, Operation, PathParameter, RequestBody, RequestResult
from app.models.key import Scope
from app.reflection.conversation import find_conversation, hand_in
from app.shapes.intake import Conversation
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


def hand_over(caller: Caller, given: NewConversation) -> RequestResult:
    intake = hand_in(caller.agent_id, given.messages, caller.actor())
    queue.enqueue(intake.id)
    return RequestResult(Conversation.of(intake), 202)


def show(caller: Caller, conversation_id: str, _: NoParameters) -> Conversation:
    return Conversation.of(find_conversation(caller.agent_id, conversation_id))


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
