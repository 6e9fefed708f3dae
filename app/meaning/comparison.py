"""Is every specific of the old text in the new one? Asked in this direction only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from fractions import Fraction
from itertools import chain, islice

from app.meaning.imperatives import has_imperative
from app.meaning.language import Language
from app.meaning.order import swapped
from app.meaning.owners import lost_owners
from app.meaning.reading import AGE, FoundSpecific, Negation, Reading
from app.meaning.replaced import lost_predicates, related, replaced_words
from app.meaning.roles import emptied_places
from app.meaning.specifics import Atom, ChangeKind, Comparison, Specific, SpecificKind
from app.meaning.tense import changed_tenses

LEAST_CONTENT = Fraction(4, 5)
"""Of the old text's content words, where its memory goes: all of them where there are fewer than five."""
LEAST_OF_SENTENCE = Fraction(1, 3)
LEAST_LONG_SENTENCE = 3
LEAST_SENTENCE = 2
"""Content words, of which one must be left where nothing counted or dated tells more; a shorter sentence is not looked
at by itself."""
LEAST_PHRASE = 2
"""Content words of a phrase that says where or for what."""
MOST_NAMED = 100
"""Missing specifics that are named. More say nothing more, and nothing more is looked for."""


def compare(old: str, new: str, *, kind: ChangeKind) -> Comparison:
    """What `new` does not say of what `old` says, each with its words as they stand in `old`."""
    before = Reading(old)
    lacking = _missing(before, Reading(new, like=before), kind)
    if not lacking:
        return Comparison(before.count_specifics(), lacking)
    found = list(before.named_specifics())
    return Comparison(len(found) + len({*lacking}.difference(found)), lacking)


def missing(old: str, new: str, *, kind: ChangeKind) -> list[Specific]:
    """The same, without the count."""
    before = Reading(old)
    return _missing(before, Reading(new, like=before), kind)


def missing_of_sources(sources: Iterable[str], new: str, *, kind: ChangeKind) -> list[Specific]:
    """What the new text lacks of any of them; each source is held to the whole rule by itself."""
    return list(dict.fromkeys(each for source in sources for each in missing(source, new, kind=kind)))


def _missing(before: Reading, after: Reading, kind: ChangeKind) -> list[Specific]:
    if before.haystack == after.haystack:
        return []
    verbatim = [*_codes(before, after), *_quotes(before, after)]
    said = "\n".join(each.words for each in verbatim)
    words = (each for each in _of_words(before, after, kind) if not (verbatim and each.words in said))
    found = islice(chain(verbatim, words, _of_sentences(before, after, kind)), MOST_NAMED)
    return list(dict.fromkeys(found))


def _of_words(before: Reading, after: Reading, kind: ChangeKind) -> Iterator[Specific]:
    yield from _lost(before, after)
    yield from _negations(before, after, kind)
    yield from changed_tenses(before, after)
    yield from emptied_places(before, after)
    yield from swapped(before, after)
    yield from replaced_words(before, after)
    yield from lost_predicates(before, after)
    yield from lost_owners(before, after)


def _of_sentences(before: Reading, after: Reading, kind: ChangeKind) -> Iterator[Specific]:
    yield from _sentences(before, after)
    yield from _clauses(before, after)
    if kind is not ChangeKind.UPDATE:
        yield from _content(before, after)


def _lost(before: Reading, after: Reading) -> Iterator[Specific]:
    soft: Set[Atom] = before.language.soft if before.language else frozenset()
    gained = _gained(before, after)
    seen: set[tuple[SpecificKind, frozenset[Atom]]] = set()
    for found in before.found:
        kind, first, last, atoms = found
        if (kind, atoms) in seen:
            continue
        seen.add((kind, atoms))
        if _is_lost(found, before, after, soft, gained):
            yield Specific(kind, before.words_of(first, last), atoms)


def _gained(before: Reading, after: Reading) -> set[SpecificKind]:
    """The kinds of which the new text says something that the old did not."""
    novel = {
        atom
        for atom, count in after.counts.items()
        if count > before.counts[atom] and (*atom, AGE) not in before.counts and not _is_told_more(atom, before)
    }
    gained: set[SpecificKind] = set()
    for found in after.found if novel else ():
        if found.kind not in gained and not novel.isdisjoint(found.atoms):
            known = found.kind is SpecificKind.NAME and all(
                atom[0] == "word" and atom[1] in before.vocabulary for atom in found.atoms
            )
            if not known:
                gained.add(found.kind)
    return gained


def _is_told_more(atom: Atom, before: Reading) -> bool:
    """A number that had no unit, and has one now."""
    return len(atom) == 3 and atom[0] == "number" and atom[:2] in before.counts


def _is_lost(found: FoundSpecific, before: Reading, after: Reading, soft: Set[Atom], gained: Set[SpecificKind]) -> bool:
    """Gone; or said less often, while something of its kind is new: one of two equal numbers was changed."""
    if found.kind in (SpecificKind.OPPOSITE, SpecificKind.MODAL):
        (atom,) = found.atoms
        if atom in after.atoms or atom in soft or _is_said_otherwise(found, before, after):
            return after.counts[atom] < before.counts[atom] and _is_replaced(found, before, after)
        return True
    if not (found.atoms <= after.atoms or all(map(after.holds, found.atoms))):
        return True
    if found.kind is SpecificKind.HEDGE or found.kind not in gained:
        return False
    return any(after.counts[atom] < before.counts[atom] for atom in found.atoms)


def _is_said_otherwise(found: FoundSpecific, before: Reading, after: Reading) -> bool:
    language = before.language
    if language is None:
        return False
    (atom,) = found.atoms
    answers = language.answers.get(atom, frozenset())
    if answers and any(language.stem(low) in answers for low in after.vocabulary - before.vocabulary):
        return True
    if not language.modal_answers.get(atom, frozenset()).isdisjoint(after.keys):
        return True
    may_be_told = atom[1] in language.imperatives and before.lows[found.first] not in language.no_imperatives
    is_told = may_be_told and has_imperative(after, _verb_behind(found.last, before))
    return is_told or _is_said_by_negation(found, before, after)


_VERB_REACH = 5
"""Words behind a modal among which is its verb."""


def _verb_behind(at: int, reading: Reading) -> str:
    return next((word.key for word in reading.words[at : at + _VERB_REACH] if word.keys), "")


def _is_said_by_negation(found: FoundSpecific, before: Reading, after: Reading) -> bool:
    """What "forbidden" and "must not" say, "never" says too; whether it is still negated is looked at by itself."""
    is_negated = found.last < len(before.words) and before.words[found.last].negation
    if not (is_negated or before.words[found.first].negation):
        return False
    return len(after.negations) >= len(before.negations)


def _is_replaced(found: FoundSpecific, before: Reading, after: Reading) -> bool:
    """By the opposite, or by another modal, of which the new text holds more than the old. What was not available may
    well be unavailable."""
    (atom,) = found.atoms
    if found.kind is SpecificKind.OPPOSITE:
        group, name, side = atom
        opposite = (group, name, 1 - int(str(side)))
        negated_no_less = len(after.negations) >= len(before.negations)
        return negated_no_less and after.counts[opposite] > before.counts[opposite]
    return any(
        other[0] == SpecificKind.MODAL and other != atom and count > before.counts[other]
        for other, count in after.counts.items()
    )


def _codes(before: Reading, after: Reading) -> Iterator[Specific]:
    return _lost_marked(SpecificKind.CODE, (before.codes, before.haystack), (after.codes, after.haystack))


def _quotes(before: Reading, after: Reading) -> Iterator[Specific]:
    old, new = (before.quotes, before.folded_haystack), (after.quotes, after.folded_haystack)
    return _lost_marked(SpecificKind.QUOTE, old, new)


def _lost_marked(
    kind: SpecificKind, before: tuple[Mapping[str, str], str], after: tuple[Mapping[str, str], str]
) -> Iterator[Specific]:
    """Without its marks it is kept, unless other such words are new: they may have taken the place."""
    (old, old_haystack), (new, new_haystack) = before, after
    novel = any(not _stands_in(key, old_haystack) for key in islice(new, MOST_NAMED))
    lost = (words for key, words in old.items() if key not in new and (novel or not _stands_in(key, new_haystack)))
    return (Specific(kind, words) for words in islice(lost, MOST_NAMED))


_MOST_PLACES = 20


def _stands_in(key: str, text: str) -> bool:
    """As words of its own: `id` does not stand in "idea"."""
    at = -1
    for _ in range(_MOST_PLACES):
        at = text.find(key, at + 1)
        if at < 0:
            return False
        end = at + len(key)
        starts = at == 0 or not (text[at - 1].isalnum() and key[0].isalnum())
        if starts and (end == len(text) or not (text[end].isalnum() and key[-1].isalnum())):
            return True
    return False


def _negations(before: Reading, after: Reading, kind: ChangeKind) -> Iterator[Specific]:
    """What was negated and is not any more, and what was said and is negated now."""
    if before.language is None:
        return
    nearest = Counter(negation.nearest for negation in after.negations)
    reached = {key for negation in after.negations for key in negation.scope}
    synonyms = before.language.synonyms
    new_classes = {number for key in after.keys - before.keys for number in synonyms.get(key, ())}
    for negation in before.negations[: 2 * MOST_NAMED]:
        if nearest[negation.nearest]:
            nearest[negation.nearest] -= 1
        elif new_classes.isdisjoint(synonyms.get(before.words[negation.first].key, ())) and not _is_negated(
            negation, reached, before, after
        ):
            yield Specific(SpecificKind.NEGATION, before.words_of_negation(negation))
    yield from _newly_negated(before, after, kind)


def _is_negated(negation: Negation, reached: Set[str], before: Reading, after: Reading) -> bool:
    prefixes = before.language.negative_prefixes if before.language else ()
    if before.language and any(
        after.counts[opposite] > before.counts[opposite]
        for key in (negation.nearest,)
        for opposite in before.language.opposites_of(key)
    ):
        return True
    if any(
        prefix + key in after.keys and prefix + key not in before.keys
        for prefix in prefixes
        for key in (negation.nearest,)
    ):
        return True
    if len(after.negations) < len(before.negations):
        return False
    if before.language and any(
        after.lows[other.first] in before.language.negating_determiners and other.nearest in negation.scope
        for other in after.negations[:MOST_NAMED]
    ):
        return True
    return negation.nearest in reached or (
        negation.nearest not in after.keys
        and (not reached.isdisjoint(negation.scope) or _has_synonym(negation.nearest, reached, before))
    )


def _has_synonym(key: str, among: Set[str], reading: Reading) -> bool:
    synonyms = reading.language.synonyms if reading.language else {}
    classes = synonyms.get(key, set())
    return any(not classes.isdisjoint(synonyms.get(other, ())) for other in among)


def _newly_negated(before: Reading, after: Reading, kind: ChangeKind) -> Iterator[Specific]:
    """The nearest word of a negation that the old text holds, and negates less often. A text that has more to say may
    negate a word in one place and say it in another."""
    if len(after.negations) <= len(before.negations):
        return
    negated = Counter(negation.nearest for negation in before.negations)
    reached = {key for negation in before.negations for key in negation.scope[1:]}
    affirmed = set() if kind is ChangeKind.UPDATE else _affirmed_keys(after) | negated.keys()
    for negation in after.negations[: 2 * MOST_NAMED]:
        key = negation.nearest
        if negated[key]:
            negated[key] -= 1
        elif key in before.keys and key not in reached and key not in affirmed:
            yield Specific(SpecificKind.NEGATION, before.content_word(key))


def _affirmed_keys(reading: Reading) -> set[str]:
    """Those that stand somewhere out of the reach of every negation."""
    reached: set[int] = set()
    for negation in reading.negations:
        reached.update(range(negation.first, negation.first + 4))
    return {key for at, word in enumerate(reading.words) if at not in reached for key in word.keys}


def _sentences(before: Reading, after: Reading) -> Iterator[Specific]:
    """Sentences of which hardly a word is left."""
    named = 0
    if before.keys <= after.keys:
        return
    for first, last in before.sentences():
        words = before.words[first:last]
        keys = {key for word in words for key in word.keys}
        if len(keys) < LEAST_SENTENCE or named >= MOST_NAMED:
            continue
        left = len(keys & after.keys)
        is_short = len(keys) < LEAST_LONG_SENTENCE
        if is_short and any(word.number or word.found for word in words):
            continue
        if not left if is_short else left < LEAST_OF_SENTENCE * len(keys):
            named += 1
            yield Specific(SpecificKind.SENTENCE, before.words_of(first, last))


def _clauses(before: Reading, after: Reading) -> Iterator[Specific]:
    """Conditions, reasons, exceptions and places of which no word with content is left."""
    if before.language is None or before.keys <= after.keys:
        return
    clauses, phrases = before.language.clause_openers, before.language.phrase_openers
    openers = clauses | phrases
    named = 0
    for at, word in enumerate(before.words):
        if word.low in openers and named < MOST_NAMED:
            if _is_hollow(before, at, before.language.hollow_clauses):
                continue
            is_telling = word.low in before.language.telling_openers or _is_definite(before, at, before.language)
            least = 1 if word.low in clauses or is_telling else LEAST_PHRASE
            end = _end_of_clause(before, at, clauses if word.low in clauses else openers)
            keys = {key for each in before.words[at + 1 : end] for key in each.keys}
            told = keys if word.low in clauses else keys - before.language.light
            if (
                len(told) >= least
                and keys.isdisjoint(after.keys)
                and not (least == 1 == len(told) and word.low in phrases and _has_related(told, before, after))
            ):
                named += 1
                yield Specific(SpecificKind.SENTENCE, before.words_of(at, end))


def _is_definite(reading: Reading, at: int, language: Language) -> bool:
    """In the vault."""
    return at + 1 < len(reading.words) and reading.lows[at + 1] in language.determiners


def _has_related(keys: Set[str], before: Reading, after: Reading) -> bool:
    language = before.language
    new = [*islice(after.keys - before.keys, MOST_NAMED)]
    return language is not None and any(related(key, other, language) for key in keys for other in new)


def _is_hollow(reading: Reading, at: int, hollow: Mapping[str, Sequence[tuple[str, ...]]]) -> bool:
    return any(tuple(reading.lows[at : at + len(words)]) == words for words in hollow.get(reading.lows[at], ()))


_LONGEST_CLAUSE = 20


def _end_of_clause(reading: Reading, at: int, openers: Set[str]) -> int:
    for end in range(at + 1, min(at + _LONGEST_CLAUSE, len(reading.words))):
        if reading.words[end].clause_end or reading.lows[end] in openers:
            return end
    return min(at + _LONGEST_CLAUSE, len(reading.words))


def _content(before: Reading, after: Reading) -> Iterator[Specific]:
    old, new = before.content, after.keys
    if not old:
        lost = [word.low for word in before.words if word.is_word and word.low not in after.vocabulary]
        return (Specific(SpecificKind.CONTENT, words) for words in islice(dict.fromkeys(lost), MOST_NAMED))
    gone = [key for key in old if key not in new]
    if len(old) - len(gone) >= LEAST_CONTENT * len(old):
        return iter(())
    return (Specific(SpecificKind.CONTENT, before.content_word(key)) for key in islice(gone, MOST_NAMED))
