"""Meaning in the Knife: before a change is made, the model is asked about every specific that it would lose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from app.extensions import db, writing
from app.history.erasing import erase_memory
from app.history.verify import verify
from app.keys.agent_keys import open_keys
from app.models import COMMAND_LINE, Action, Agent, AskedLoss, AuditLog, Event, Memory, Status, asked_losses
from app.refinement import losses
from tests.history.going_back import undo
from tests.refinement.driving import carry
from tests.support.factories import Running, begin, ledger, make_agent, remember
from tests.support.scripted import call, say
from tests.support.tampering import rows, tamper

pytestmark = pytest.mark.once

RENT = "Ann pays 1,200 euros of rent on the first of each month, as she told me on a walk."
FILLER = [
    f"On day {number} of our journey we slept in a small hotel by the sea and wrote letters." for number in range(9)
]


@pytest.fixture
def run(agent: Agent) -> Running:
    remember(agent, RENT, *FILLER)
    return begin(agent)


def text_of(run: Running, number: int) -> str:
    memory = db.session.get_one(Memory, number, populate_existing=True)
    return run.tool._keys.reveal_memory(number, memory.content)


def update(run: Running, content: str, **more: Any) -> dict[str, Any]:
    return run.tool.execute("update", id=1, content=content, **more)


CHEAPER = "Ann pays 1,250 euros of rent on the first of each month, as she told me on a walk."
SOON = "Ann pays 1,250 euros of rent on the last of each month, as she told me on a walk."


def specifics(run: Running) -> dict[str, int]:
    found: dict[str, int] = run.reload().stats["specifics"]
    return found


def test_a_change_that_loses_a_specific_is_asked_about_and_not_made(run: Running) -> None:
    result = update(run, CHEAPER)

    assert (result["type"], result["missing"]) == ("would_lose", ["number: 1,200 euros"])
    assert (result["changes_left"], result["retention"]) == (10, "1.0000")
    assert "confirm_loss: true" in result["advice"]
    assert text_of(run, 1) == RENT
    assert (run.reload().mutations, run.refinement.refused_calls) == (0, 0)
    assert specifics(run) == {"checked": 0, "missing": 1, "restored": 0, "confirmed": 0}


def test_what_is_put_back_is_counted_as_restored(run: Running) -> None:
    update(run, CHEAPER)
    result = update(run, "Ann told me on a walk: she pays 1,200 euros of rent on the first of each month.")

    assert result["type"] == "updated"
    counted = specifics(run)
    assert counted == {"checked": counted["checked"], "missing": 1, "restored": 1, "confirmed": 0}
    assert run.refinement.specifics_line == f"{counted['checked']} of {counted['checked']} specifics kept"
    [(asked, named)] = asked_losses(run.refinement.id, run.tool._keys)
    assert (asked.missing, asked.restored, asked.confirmed, named) == (1, 1, 0, ["number: 1,200 euros"])


def test_a_loss_that_was_named_can_be_confirmed(run: Running) -> None:
    update(run, CHEAPER)
    result = update(run, CHEAPER, confirm_loss=True)

    assert result["type"] == "updated"
    assert text_of(run, 1) == CHEAPER
    row = run.reload()
    assert (row.specifics_confirmed, row.confirmed_losses, row.specifics_restored) == (1, 1, 0)
    assert row.specifics_line.endswith("1 loss confirmed by the agent")
    [(asked, _)] = asked_losses(row.id, run.tool._keys)
    entry = db.session.get_one(AuditLog, asked.entry_id)
    assert (asked.confirmed, entry.data["specifics"]["confirmed"]) == (1, 1)
    assert verify().ok


def test_a_confirmation_without_a_question_is_ignored(run: Running) -> None:
    assert update(run, CHEAPER, confirm_loss=True)["type"] == "would_lose"
    assert text_of(run, 1) == RENT


def test_a_confirmation_of_another_memory_or_function_is_asked_anew(run: Running) -> None:
    update(run, CHEAPER)
    other = "On our journey we slept in a small hotel by the sea and wrote letters."
    assert run.tool.execute("update", id=2, content=other, confirm_loss=True)["type"] == "would_lose"
    merged = run.tool.execute("consolidate", ids=[1, 2], content=CHEAPER, confirm_loss=True)
    assert merged["type"] == "would_lose"
    assert "number: 1,200 euros (memory 1)" in merged["missing"]


def test_a_confirmation_in_the_reply_of_the_question_is_ignored(run: Running) -> None:
    """The model has not read the question yet: it comes with the answers to all calls of the reply."""
    arguments = {"id": 1, "content": CHEAPER}
    assert run.tool.call("update_memory", json.dumps(arguments))["type"] == "would_lose"
    confirmed = json.dumps(arguments | {"confirm_loss": True})
    assert run.tool.call("update_memory", confirmed)["type"] == "would_lose"
    run.tool.settle()
    assert run.tool.call("update_memory", confirmed)["type"] == "updated"


def test_a_confirmation_covers_only_what_was_named(run: Running) -> None:
    update(run, CHEAPER)
    result = update(run, SOON, confirm_loss=True)
    assert result["type"] == "would_lose"
    assert len(result["missing"]) > 1
    assert text_of(run, 1) == RENT
    assert update(run, SOON, confirm_loss=True)["type"] == "updated"


def test_after_the_change_nothing_that_was_named_before_it_can_be_confirmed(run: Running) -> None:
    update(run, CHEAPER)
    assert update(run, RENT.replace(", as she told me on a walk", ""))["type"] == "updated"
    assert update(run, CHEAPER.replace(", as she told me on a walk", ""), confirm_loss=True)["type"] == "would_lose"


def test_what_would_lose_very_much_is_never_confirmed(agent: Agent) -> None:
    remember(agent, "The list: " + ", ".join(f"item {number} costs {number + 100} euros" for number in range(60)), RENT)
    run = begin(agent)
    for _ in range(2):
        result = run.tool.execute("update", id=1, content="The list has items and costs.", confirm_loss=True)
        assert result["type"] != "updated"
    assert "can't be confirmed" in update(run, "The list has items, and their costs.")["advice"]


def test_ten_overwritten_memories_are_asked_about_and_three_are_confirmed(agent: Agent) -> None:
    """Mass sees nothing of it: rubbish of the same length."""
    ids = remember(agent, *(f"{number} {FILLER[0]}" for number in range(30, 40)))
    run = begin(agent)
    rubbish = (
        "The weather was nice, as it is so often, and nothing much happened, but a dog barked for a long while, yes."
    )
    first = [run.tool.execute("update", id=one, content=rubbish) for one in ids]
    assert [result["type"] for result in first] == ["would_lose"] * 10

    second = [run.tool.execute("update", id=one, content=rubbish, confirm_loss=True) for one in ids]
    assert [result["type"] for result in second] == ["updated"] * 3 + ["error"] * 7
    assert "No further loss can be confirmed" in second[-1]["error"]
    run.tool.settle()
    assert run.reload().refused == {"confirmations_used": 7}


def test_the_operator_and_the_agent_say_how_many_losses_can_be_confirmed(agent: Agent) -> None:
    remember(agent, RENT, *FILLER)
    with writing():
        Agent.lock(agent.id).max_confirmed_losses = 0
    run = begin(agent)
    result = update(run, CHEAPER)
    assert "No further loss can be confirmed" in result["advice"]
    assert update(run, CHEAPER, confirm_loss=True)["type"] == "error"


def test_the_same_call_again_is_refused_and_ends_a_model_that_repeats_it(agent: Agent) -> None:
    remember(agent, RENT, *FILLER)
    again = [call("update_memory", id=1, content=CHEAPER) for _ in range(5)]
    done = carry(agent, say("YES"), *again)
    assert (done.refinement.status, done.refinement.turns) == (Status.UNFINISHED, 4)
    assert done.refinement.refused == {"asked_before": 3}
    assert "repeated a refused call" in str(done.refinement.reason)
    assert done.refinement.specifics_missing == 1


@pytest.mark.parametrize("value", ["true", 1, 0, None, [], {}, "yes"])
def test_confirm_loss_is_a_boolean_or_refused(run: Running, value: object) -> None:
    update(run, CHEAPER)
    result = update(run, CHEAPER, confirm_loss=value)
    assert result["type"] == "error"
    assert "true or false" in result["error"]
    assert text_of(run, 1) == RENT


def delete(run: Running, one: object, carrier: object) -> dict[str, Any]:
    return run.tool.execute("delete", id=one, carried_by=carrier)


def test_a_deletion_goes_where_its_carrier_says_everything(agent: Agent) -> None:
    remember(agent, "Ann likes green tea.", "Ann likes green tea, in the morning most of all.", *FILLER)
    run = begin(agent)
    assert delete(run, 2, 1)["type"] == "would_lose"
    result = delete(run, "1", "2")
    assert (result["type"], result["id"], result["carried_by"]) == ("deleted", 1, 2)
    entry = db.session.scalars(db.select(AuditLog).where(AuditLog.action == Action.REFINEMENT_DELETE)).one()
    assert (entry.data["carrier"], entry.data["specifics"]["confirmed"]) == (2, 0)


def test_a_deletion_can_not_be_confirmed(run: Running) -> None:
    result = delete(run, 1, 2)
    assert result["type"] == "would_lose"
    assert "Put them into memory 2 first" in result["advice"]
    confirmed = run.tool.execute("delete", id=1, carried_by=2, confirm_loss=True)
    assert confirmed["type"] == "error"
    assert "takes id, carried_by" in confirmed["error"]
    assert db.session.get_one(Memory, 1, populate_existing=True).is_active


def test_what_the_carrier_lacks_can_be_put_there_first(run: Running) -> None:
    delete(run, 1, 2)
    assert run.tool.execute("update", id=2, content=f"{FILLER[0]} {RENT}")["type"] == "updated"
    assert delete(run, 1, 2)["type"] == "deleted"
    assert specifics(run)["restored"] > 0


def test_a_carrier_that_is_none_is_refused_in_words(run: Running) -> None:
    eve = make_agent("eve")
    (hers,) = remember(eve, RENT)
    gone = delete(run, 2, 3)
    assert gone["type"] == "would_lose"
    with_nothing = run.tool.execute("delete", id=1)
    for refused, words in (
        (with_nothing, "Missing: carried_by"),
        (delete(run, 1, 1), "can't carry itself"),
        (delete(run, 1, hers), f"has the id {hers}"),
        (delete(run, 1, 10**9), f"has the id {10**9}"),
        (delete(run, 1, None), "Missing: carried_by"),
        (delete(run, 1, True), "one integer"),
        (delete(run, 1, "1_0"), "one integer"),
        (delete(run, 1, [2]), "one integer"),
    ):
        assert refused["type"] == "error"
        assert words in refused["error"]
    assert run.reload().mutations == 0


def test_a_deleted_memory_carries_nothing(agent: Agent) -> None:
    remember(
        agent, RENT, f"{RENT} She is fond of the flat.", f"{RENT} She is fond of the flat, and of its balcony.", *FILLER
    )
    run = begin(agent)
    assert delete(run, 2, 3)["type"] == "deleted"
    refused = delete(run, 1, 2)
    assert refused["type"] == "error"
    assert "has the id 2" in refused["error"]


def test_the_carrier_gets_the_dates_and_tags_even_a_constitutional_one(agent: Agent) -> None:
    (one,) = remember(agent, "Ann likes tea.", tags=["tea"])
    (carrier,) = remember(agent, "Ann likes tea and rum.", constitutional=True, tags=["rum"])
    remember(agent, *FILLER)
    first = db.session.get_one(Memory, one).origin_at
    run = begin(agent)
    assert delete(run, one, carrier)["type"] == "deleted"
    kept = db.session.get_one(Memory, carrier, populate_existing=True)
    assert (kept.tags, kept.constitutional) == (["rum", "tea"], True)
    assert first in kept.dates
    before = ledger(agent)
    run.tool.execute("complete", summary="Done.")
    undo(run.refinement.id)
    assert db.session.get_one(Memory, carrier, populate_existing=True).tags == ["rum"]
    assert len(ledger(agent)) == len(before) + 1
    assert verify().ok


def test_a_constitutional_memory_is_never_deleted_whoever_carries_it(agent: Agent) -> None:
    remember(agent, "Ann likes tea.", constitutional=True)
    remember(agent, "Ann likes tea and rum.")
    assert "constitutional" in delete(begin(agent), 1, 2)["error"]


def test_a_consolidation_names_the_memory_of_each_loss(agent: Agent) -> None:
    remember(agent, "Ann moved to Oslo in 2021.", "Bob moved to Bergen in 2022.", *FILLER)
    run = begin(agent)
    result = run.tool.execute("consolidate", ids="1,2", content="Ann and Bob moved to Norway in 2021.")
    assert result["type"] == "would_lose"
    assert {"name: Oslo (memory 1)", "name: Bergen (memory 2)"} <= set(result["missing"])
    both = run.tool.execute("consolidate", ids="1,2", content="Ann moved to Oslo in 2021, Bob to Bergen in 2022.")
    assert both["type"] == "consolidated"


def test_no_words_of_a_question_stand_anywhere_but_sealed(run: Running) -> None:
    update(run, CHEAPER)
    for event in db.session.scalars(db.select(Event)):
        assert "1,200" not in json.dumps(event.data)
    row = db.session.scalars(db.select(AskedLoss)).one()
    assert row.words is not None
    assert b"1,200" not in row.words.at_rest
    assert "1,200" not in repr(row.words)


def test_no_error_and_no_printed_form_of_a_question_holds_what_it_names(run: Running) -> None:
    """A printed form may stand in a log; the words are for the model alone, in the answer to its call."""
    proposal = losses.Proposal(losses.ChangeKind.UPDATE, {1: RENT}, CHEAPER)
    questions = losses.Questions()
    with pytest.raises(losses.WouldLose) as asked:
        questions.check(proposal, confirm=False, confirmations_left=3)
    questions.note(asked.value, "call")
    with pytest.raises(losses.AskedBefore) as refused:
        questions.note(asked.value, "call")
    printed = f"{asked.value!r} {asked.value} {asked.value.losses!r} {proposal!r} {refused.value!r} {refused.value}"
    assert "1,200" not in printed
    assert "1,250" not in printed


def test_what_a_question_quoted_is_erased_with_its_memory(run: Running) -> None:
    update(run, CHEAPER)
    run.tool.execute("complete", summary="Nothing.")
    erase_memory(run.agent.id, 1, by=COMMAND_LINE, reason="asked for")
    [(row, words)] = asked_losses(run.refinement.id, open_keys(run.agent))
    assert (row.words, words, row.missing) == (None, [], 1)


def test_after_the_end_nothing_is_compared_or_asked(run: Running) -> None:
    run.tool.execute("complete", summary="Done.")
    result = update(run, CHEAPER)
    assert result["type"] == "error"
    assert "terminated" in result["error"]
    assert db.session.scalars(db.select(AskedLoss)).all() == []


def test_many_sources_are_compared_before_their_rows_are_locked(agent: Agent, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = remember(agent, *(f"{FILLER[0]} The {number}th time." for number in range(20)))
    run = begin(agent)
    inside: list[bool] = []

    def compared(proposal: losses.Proposal) -> tuple[int, dict[losses.Loss, None]]:
        inside.append(db.session().in_transaction())
        return compare(proposal)

    compare = losses._compare_texts
    monkeypatch.setattr(losses, "_compare_texts", compared)
    assert run.tool.execute("consolidate", ids=ids, content=FILLER[0])["type"] == "would_lose"
    assert inside == [False]


@pytest.mark.parametrize(
    "forged",
    [
        "UPDATE asked_losses SET missing = 9",
        "UPDATE asked_losses SET restored = 1",
        "UPDATE asked_losses SET memory_id = 2",
        "UPDATE asked_losses SET words = NULL",
        "DELETE FROM asked_losses",
        "UPDATE refinements SET specifics_confirmed = 0",
    ],
)
def test_what_was_asked_can_not_be_altered_unseen(run: Running, forged: str) -> None:
    update(run, CHEAPER)
    update(run, CHEAPER, confirm_loss=True)
    run.tool.execute("complete", summary="Done.")
    assert verify().ok
    assert tamper(forged)
    assert not verify().ok


def test_an_erased_memory_s_words_put_back_are_found(run: Running) -> None:
    update(run, CHEAPER)
    run.tool.execute("complete", summary="Nothing.")
    was = rows("SELECT words FROM asked_losses")[0][0]
    erase_memory(run.agent.id, 1, by=COMMAND_LINE, reason="asked for")
    assert verify().ok
    tamper("UPDATE asked_losses SET words = :was", was=was)
    assert "words of a question about it are there again" in str(verify().first_problem)
