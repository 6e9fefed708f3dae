"""Does an answer say what was expected? Compared as texts are, with the question beside both, which tells the language.

The question's own words prove nothing, so of the expected answer its own content words must be there.
"""

from __future__ import annotations

from app.meaning.comparison import LEAST_CONTENT, missing
from app.meaning.reading import Reading, extract
from app.meaning.specifics import ChangeKind, SpecificKind


def says_expected(question: str, expected: str, given: str) -> bool:
    """Whether every specific of the expected answer is in the given one, and 80 % of its content words: all of them
    where there are fewer than five. More can be said. A direction can be left out, and not be turned round.
    """
    before, after = f"{question}\n{expected}", f"{question}\n{given}"
    lost = {each.kind for each in missing(before, after, kind=ChangeKind.UPDATE)} - {SpecificKind.OPPOSITE}
    return not lost and not _turns_round(before, after) and _holds_content(question, before, after)


def _turns_round(before: str, after: str) -> bool:
    """Whether it says no where that was not expected, or another direction instead of the expected one."""
    wanted, given = extract(before), extract(after)
    if len(given.of(SpecificKind.NEGATION)) > len(wanted.of(SpecificKind.NEGATION)):
        return True
    directions = [{words.casefold() for words in each.of(SpecificKind.OPPOSITE)} for each in (wanted, given)]
    return bool(directions[0] - directions[1]) and bool(directions[1] - directions[0])


def _holds_content(question: str, before: str, after: str) -> bool:
    expected = Reading(before)
    asked, given = Reading(question, like=expected), Reading(after, like=expected)
    own = [key for key in expected.content if key not in asked.keys]
    return sum(key in given.keys for key in own) >= LEAST_CONTENT * len(own)
