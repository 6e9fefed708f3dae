"""Conversations: an agent hands one in, and a worker lets its own model say what of it is to be remembered."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import Field

from app.api.caller import Caller
from app.api.operation import UUID_FORM, PathParameter, RequestBody, operation
from app.models.key import Scope
from app.reflection.conversation import find_conversation, hand_in
from app.shapes.memory import Conversation
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


@operation("POST", "/conversations", Scope.WRITE, statuses=(202,), most_bytes=4_000_000)
def hand_in_conversation(caller: Caller, given: NewConversation) -> Conversation:
    """Hand in a conversation that you had. Your own model reads it in the background, under your reflection_prompt, and
    keeps a few journal entries and core memories of it. The transcript itself is not kept. get_conversation says what
    came of it.
    """
    intake = hand_in(caller.agent_id, given.messages, caller.actor(), caller.signer)
    queue.enqueue(intake.id)
    return Conversation.of(intake)


@operation("GET", "/conversations/{conversation_id}", Scope.READ, at=ID)
def get_conversation(caller: Caller, conversation_id: str) -> Conversation:
    """What came of a conversation that you handed in: whether it was read, and how many memories were kept."""
    return Conversation.of(find_conversation(caller.agent_id, conversation_id))
