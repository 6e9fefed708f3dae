"""Recall probes: what the agent's model still knows from the new ledger of what it asked itself before.

After the snapshot it writes questions with answers, each from one of its memories; after the last change it answers
them from the ledger alone. A local rule compares the answers. All of that shows, and decides nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from app.asking.calls import AskedAgent
from app.asking.prompt_memories import NO_IDENTITY, PromptMemory, fit_ledger, tokens_left
from app.asking.rendering import encode_json, render_prompt
from app.asking.replies import MalformedReply, read_list, read_object
from app.errors import Invalid
from app.llm.client import Message, Reply
from app.meaning import ChangeKind, missing, says_expected
from app.models.recall_probe import Probe
from app.values.text import clean_text, is_blank

LONGEST_QUESTION = 500
LONGEST_ANSWER = 300
"""Characters; what is longer recites more than it asks or answers."""

MOST_REPLIED = 100
"""Entries of a reply that are looked at."""


def probe_messages(agent: AskedAgent, ledger: Sequence[PromptMemory], count: int, window: int | None) -> list[Message]:
    """Has the agent write so many questions about its memories."""
    question = render_prompt("probe_questions.txt", count=count)
    return [
        _ledger_message(ledger, tokens_left(window, [question]), agent.system_prompt or NO_IDENTITY),
        _user(question),
    ]


def answer_messages(ledger: Sequence[PromptMemory], probes: Sequence[Probe], window: int | None) -> list[Message]:
    """Has it answer them from the ledger alone: without who it is, its journal, or what it did."""
    lines = [encode_json({"question": number, "text": each.question}) for number, each in enumerate(probes, start=1)]
    question = render_prompt("probe_answers.txt", questions=lines)
    return [_ledger_message(ledger, tokens_left(window, [question]), NO_IDENTITY), _user(question)]


def read_probes(reply: Reply, ledger: Sequence[PromptMemory], count: int) -> list[Probe]:
    """The first so many that can be used: about a memory of the ledger that says the answer, while the question does
    not. The others are left out, and so is all of a reply that has another form.
    """
    contents = {entry.id: entry.content for entry in ledger}
    found: dict[str, Probe] = {}
    try:
        for each in read_list(read_object(reply, "probes"), "probes", MOST_REPLIED):
            probe = _read_probe(each, contents)
            if probe is not None:
                found.setdefault(probe.question.casefold(), probe)
    except MalformedReply:
        return []
    return list(found.values())[:count]


def read_answers(reply: Reply, count: int) -> list[str] | None:
    """One for each question, in their order. None where the reply has another form, or another number of them."""
    try:
        found = read_list(read_object(reply, "answers"), "answers", MOST_REPLIED)
    except MalformedReply:
        return None
    return [each if isinstance(each, str) else "" for each in found] if len(found) == count else None


def is_answered(probe: Probe, answer: str) -> bool:
    """Whether the answer says all that was expected, and is no recital of a whole memory."""
    is_short = len(answer) <= LONGEST_ANSWER + len(probe.answer)
    return is_short and says_expected(probe.question, probe.answer, answer)


def count_held(named: Iterable[str], ledger: Sequence[PromptMemory]) -> int:
    """How many of these, each as `kind: words`, stand word for word in some memory of the ledger, in any case."""
    texts = [" ".join(entry.content.casefold().split()) for entry in ledger]
    wanted = [each.partition(": ")[2].casefold().rstrip("…") for each in named]
    return sum(any(words in text for text in texts) for words in wanted)


def _says(text: str, wanted: str) -> bool:
    return not missing(wanted, text, kind=ChangeKind.DELETE)


def _read_probe(found: Any, contents: Mapping[int, str]) -> Probe | None:
    if not isinstance(found, dict) or set(found) != {"memory", "question", "answer"}:
        return None
    memory_id = found["memory"]
    question, answer = _clean(found["question"], LONGEST_QUESTION), _clean(found["answer"], LONGEST_ANSWER)
    if isinstance(memory_id, bool) or not isinstance(memory_id, int) or memory_id not in contents:
        return None
    if not (question and answer) or _says(question, answer) or not _says(contents[memory_id], answer):
        return None
    return Probe(memory_id, question, answer)


def _clean(value: Any, longest: int) -> str:
    """On one line. Empty for what is no text that can be stored, or longer."""
    try:
        line = " ".join(clean_text(value, what="text").split())
    except Invalid:
        return ""
    return "" if is_blank(line) or len(line) > longest else line


def _ledger_message(ledger: Sequence[PromptMemory], window: int | None, identity: str) -> Message:
    shown, heading = fit_ledger(ledger, window)
    system = render_prompt("probe_system.txt", identity=identity, ledger=shown, ledger_heading=heading)
    return {"role": "system", "content": system}


def _user(content: str) -> Message:
    return {"role": "user", "content": content}
