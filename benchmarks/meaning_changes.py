"""Changes planted in texts for `benchmarks.meaning`: losses, and tightenings that lose nothing.

Each function takes a text and a source of chance, and gives the text before and after it, or None where the text offers
no place for it. They know nothing of `app.meaning`: no list of words is shared with it.
"""

from __future__ import annotations

import itertools
import random
import re
from collections.abc import Callable

Pair = tuple[str, str]
Planter = Callable[[str, random.Random], Pair | None]

_NAME = re.compile(r"(?<=[a-z,] )[A-Z][a-z]{2,}\b")
_WORD_AFTER_STOP = re.compile(r"(?<=[.!?] )(?=[A-Z])")
_SURNAMES = [
    "Okafor",
    "Lindqvist",
    "Marchetti",
    "Delacroix",
    "Novak",
    "Petrov",
    "Yamada",
    "Haddad",
    "Osei",
    "Brandt",
    "Castillo",
    "Moreau",
]
_IRREGULAR = {
    "is": "was", "are": "were", "was": "is", "were": "are", "has": "had", "went": "goes", "took": "takes",
    "gives": "gave", "won": "wins", "became": "becomes", "made": "makes", "wrote": "writes", "runs": "ran",
    "held": "holds", "led": "leads", "does": "did",
}  # fmt: skip
_REGULAR = [
    "use",
    "play",
    "serve",
    "work",
    "live",
    "move",
    "call",
    "join",
    "return",
    "start",
    "name",
    "locate",
    "require",
    "support",
    "create",
    "store",
    "contain",
    "release",
    "locate",
]
_OPPOSITES = [
    ("before", "after"), ("more", "less"), ("increase", "decrease"), ("increased", "decreased"),
    ("higher", "lower"), ("left", "right"), ("north", "south"), ("east", "west"), ("northern", "southern"),
    ("eastern", "western"), ("always", "never"), ("enable", "disable"), ("enabled", "disabled"),
    ("allow", "forbid"), ("allowed", "forbidden"), ("accept", "reject"), ("first", "last"), ("above", "below"),
    ("public", "private"), ("maximum", "minimum"), ("old", "new"), ("large", "small"), ("high", "low"),
    ("early", "late"), ("father", "mother"), ("son", "daughter"), ("brother", "sister"), ("won", "lost"),
    ("buy", "sell"), ("internal", "external"), ("required", "optional"), ("add", "remove"), ("start", "end"),
    ("synchronous", "asynchronous"), ("safe", "dangerous"),
]  # fmt: skip
_FILLERS = ["really", "just", "basically", "actually", "simply", "very", "quite"]
_SHORT = [
    ("do not", "don't"), ("does not", "doesn't"), ("is not", "isn't"), ("are not", "aren't"), ("can not", "can't"),
    ("cannot", "can't"), ("did not", "didn't"), ("it is", "it's"), ("I will", "I'll"), ("that is", "that's"),
    ("they are", "they're"), ("was not", "wasn't"),
]  # fmt: skip
_NUMBERS = ["zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"]
_TIGHTER = [
    ("in order to", "to"), ("as well as", "and"), ("due to the fact that", "because"), ("a number of", "several"),
    ("utilize", "use"), ("such as", "like"), ("which is", ""), ("which are", ""), ("that are", ""), (" the ", " "),
    ("for example", "e.g."), (" and ", " & "),
]  # fmt: skip


def _replaced(
    text: str, pattern: str | re.Pattern[str], chance: random.Random, change: Callable[[str], str]
) -> Pair | None:
    places = list(re.finditer(pattern, text))
    if not places:
        return None
    place = chance.choice(places)
    new = change(place[0])
    return None if new == place[0] else (text, text[: place.start()] + new + text[place.end() :])


def _appended(text: str, chance: random.Random, sentences: list[Pair]) -> Pair:
    """The text with a sentence, and the same with another one."""
    old, new = chance.choice(sentences)
    stem = text.rstrip(" .") + ". "
    return stem + old, stem + new


def number_changed(text: str, chance: random.Random) -> Pair | None:
    return _replaced(
        text, r"(?<![\w.,/:-])\d+(?![\w,:/-]|\.\d)", chance, lambda old: str(int(old) + chance.randint(1, 9))
    )


def number_word_changed(text: str, chance: random.Random) -> Pair | None:
    return _replaced(
        text,
        r"\b(?:two|three|four|five|six|seven|eight|nine|ten)\b",
        chance,
        lambda old: "six" if old != "six" else "nine",
    )


def date_changed(text: str, chance: random.Random) -> Pair | None:
    months = [
        "January",
        "February",
        "March",
        "April",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ]
    found = _replaced(
        text, "|".join(months), chance, lambda old: chance.choice([month for month in months if month != old])
    )
    day, other = chance.sample(range(1, 29), 2)
    return found or _appended(
        text,
        chance,
        [
            (f"Agreed on 2025-03-{day:02}.", f"Agreed on 2025-03-{other:02}."),
            (f"The call is on {day} May at 15:30.", f"The call is on {other} May at 15:30."),
            ("The call is on Tuesday.", "The call is on Thursday."),
            (f"It starts at {day % 12 + 1} pm.", f"It starts at {day % 12 + 1} am."),
        ],
    )


def unit_changed(text: str, chance: random.Random) -> Pair | None:
    amount = chance.randint(2, 90)
    pairs = [
        ("minutes", "hours"),
        ("km", "miles"),
        ("kg", "pounds"),
        ("MB", "GB"),
        ("days", "weeks"),
        ("%", " ms"),
        ("dollars", "euros"),
    ]
    old, new = chance.choice(pairs)
    return _appended(text, chance, [(f"The limit is {amount} {old}.", f"The limit is {amount} {new}.")])


def name_replaced(text: str, chance: random.Random) -> Pair | None:
    return _replaced(text, _NAME, chance, lambda old: chance.choice(_SURNAMES))


def name_dropped(text: str, chance: random.Random) -> Pair | None:
    return _replaced(text, _NAME, chance, lambda old: "someone")


def names_swapped(text: str, chance: random.Random) -> Pair | None:
    places = [place for place in _NAME.finditer(text) if text.count(place[0]) == 1]
    apart = [
        (one, other)
        for one, other in itertools.pairwise(places)
        if re.search(r" [a-z]{4,} ", text[one.end() : other.start()]) and "," not in text[one.end() : other.start()]
    ]
    if not apart:
        return None
    one, other = chance.choice(apart)
    return text, text[: one.start()] + other[0] + text[one.end() : other.start()] + one[0] + text[other.end() :]


def names_of_a_scene_swapped(text: str, chance: random.Random) -> Pair | None:
    one, other = chance.sample(_SURNAMES, 2)
    scene = chance.choice(
        [
            "{} owes {} an apology.",
            "{} reports to {}.",
            "{} is older than {}.",
            "{} sold the boat to {}.",
            "{} taught {} chess.",
        ]
    )
    return _appended(text, chance, [(scene.format(one, other), scene.format(other, one))])


def negation_dropped(text: str, chance: random.Random) -> Pair | None:
    forms = {
        "do not ": "",
        "don't ": "",
        "does not ": "",
        "doesn't ": "",
        "cannot": "can",
        "can't": "can",
        "never ": "",
        "not ": "",
        "no ": "a ",
    }
    found = _replaced(
        text,
        r"(?i)\b(?:do not |don't |does not |doesn't |cannot|can't|never |not |no )",
        chance,
        lambda old: forms[old.lower()],
    )
    return found and (found[0], found[1].replace("  ", " "))


def negation_added(text: str, chance: random.Random) -> Pair | None:
    return _replaced(
        text, r"\b(?:is|are|was|were|can|should|will|must|has been) (?!not)", chance, lambda old: old + "not "
    )


def modal_changed(text: str, chance: random.Random) -> Pair | None:
    forms = {
        "should": "must",
        "can": "must",
        "must": "may",
        "will": "should",
        "would": "will",
        "need to": "may",
        "may": "must",
        "might": "will",
    }
    return _replaced(text, r"\b(?:" + "|".join(forms) + r")\b(?! not)", chance, lambda old: forms[old])


def hedge_dropped(text: str, chance: random.Random) -> Pair | None:
    hedges = "probably usually perhaps maybe often generally approximately possibly sometimes likely roughly mostly"
    found = _replaced(text, rf"\b(?:{hedges.replace(' ', '|')}|apparently) ", chance, lambda old: "")
    scenes = [
        ("The cause is probably the cache.", "The cause is the cache."),
        ("Perhaps the owner agrees.", "The owner agrees."),
    ]
    scenes += [
        ("The owner might agree.", "The owner agrees."),
        ("I think the cache is the cause.", "The cache is the cause."),
    ]
    scenes += [("Apparently the shop moved.", "The shop moved."), ("It takes roughly a day.", "It takes a day.")]
    return found or _appended(text, chance, scenes)


def quote_altered(text: str, chance: random.Random) -> Pair | None:
    said = [
        ("we ship on green", "we ship when green"),
        ("love you to bits", "love you a lot"),
        ("sharp as flint", "sharp as glass"),
    ]
    old, new = chance.choice(said)
    return _replaced(text, r'(?<=")[A-Za-z][^"\n]*[a-z](?=")', chance, _other_word) or _appended(
        text, chance, [(f'The motto is "{old}".', f'The motto is "{new}".')]
    )


def _other_word(text: str) -> str:
    words = text.split()
    words[len(words) // 2] = "walnut"
    return " ".join(words)


def identifier_altered(text: str, chance: random.Random) -> Pair | None:
    return _replaced(text, r"\b[a-zA-Z]+_[a-zA-Z_]+\b", chance, lambda old: old[: old.rindex("_")] + "_other")


def address_altered(text: str, chance: random.Random) -> Pair | None:
    address = r"https?://[^\s)>\"`]+[a-z]|\b[a-z.]+\.(?:com|dev|org|io)/[a-z/-]+"
    return _replaced(text, address, chance, lambda old: old[:-2] + "qz")


def code_altered(text: str, chance: random.Random) -> Pair | None:
    return _replaced(text, r"`[^`\n]+`", chance, lambda old: old[: len(old) // 2] + "x" + old[len(old) // 2 + 1 :])


def emoji_dropped(text: str, chance: random.Random) -> Pair | None:
    mark = chance.choice(["🎉", "❤️", "👍🏽", "✅", "👩‍💻", "🇫🇷"])
    return f"{text} {mark}", text


def opposite_flipped(text: str, chance: random.Random) -> Pair | None:
    other = {**dict(_OPPOSITES), **{right: left for left, right in _OPPOSITES}}
    return _replaced(text, r"\b(?:" + "|".join(other) + r")\b", chance, lambda old: other[old])


def tense_changed(text: str, chance: random.Random) -> Pair | None:
    forms = dict(_IRREGULAR)
    for verb in _REGULAR:
        past = verb + ("d" if verb.endswith("e") else "ed")
        forms |= {verb + "s": past}
    return _replaced(text, r"\b(?:" + "|".join(forms) + r")\b(?! not)", chance, lambda old: forms[old])


def sentence_dropped(text: str, chance: random.Random) -> Pair | None:
    sentences = _WORD_AFTER_STOP.split(text.replace(" . ", ". "))
    if len(sentences) < 2 or any(len(sentence.split()) < 6 for sentence in sentences):
        return None
    gone = chance.randrange(len(sentences))
    return " ".join(sentences), " ".join(sentence for at, sentence in enumerate(sentences) if at != gone)


def overwritten(text: str, chance: random.Random) -> Pair | None:
    rubbish = (
        "the thing goes with a lot of stuff and it has some of it here which is fine as far as that matters today "
    )
    return (text, (rubbish * (len(text) // len(rubbish) + 1))[: len(text)]) if len(text) > 30 else None


LOSSES: dict[str, Planter] = {
    "number changed": number_changed, "number word changed": number_word_changed,
    "date or time changed": date_changed, "unit changed": unit_changed, "name replaced": name_replaced,
    "name dropped": name_dropped, "names swapped": names_swapped,
    "names swapped (scenes)": names_of_a_scene_swapped, "negation dropped": negation_dropped,
    "negation added": negation_added, "modal changed": modal_changed, "hedge dropped": hedge_dropped,
    "quoted word altered": quote_altered, "identifier altered": identifier_altered,
    "address altered": address_altered, "code altered": code_altered, "emoji dropped": emoji_dropped,
    "opposite or direction flipped": opposite_flipped, "tense changed": tense_changed,
    "sentence dropped": sentence_dropped, "overwritten": overwritten,
}  # fmt: skip


def filler_dropped(text: str, chance: random.Random) -> Pair | None:
    words = text.split(" ")
    at = chance.randrange(len(words) + 1)
    return " ".join([*words[:at], chance.choice(_FILLERS), *words[at:]]), text


def contracted(text: str, chance: random.Random) -> Pair | None:
    usual = [(long, short) for long, short in _SHORT if re.search(rf"\b{long}\b", text)]
    if not usual:
        return None
    long, short = chance.choice(usual)
    return text, re.sub(rf"\b{long}\b", short, text, count=1)


def digits_for_words(text: str, chance: random.Random) -> Pair | None:
    return _replaced(
        text,
        r"\b(?:two|three|four|five|six|seven|eight|nine|ten|eleven|twelve)\b",
        chance,
        lambda old: str(_NUMBERS.index(old)),
    )


def words_for_digits(text: str, chance: random.Random) -> Pair | None:
    return _replaced(text, r"(?<![\w.,$/:#-])(?:[2-9]|1[0-2])(?= [a-z])", chance, lambda old: _NUMBERS[int(old)])


def clause_moved(text: str, chance: random.Random) -> Pair | None:
    match = re.fullmatch(r"((?:In|On|During|After|Before|When|If|At|From) [^,.]{3,60}) ?, ([^.]{10,})(\.?)", text)
    if not match:
        return None
    clause, main, stop = match.groups()
    return text, f"{main[0].upper()}{main[1:].rstrip()} {clause[0].lower()}{clause[1:]}{stop}"


def punctuated(text: str, chance: random.Random) -> Pair | None:
    return text, chance.choice(
        [text.rstrip(" ."), text.rstrip(" .") + ".", text.replace(",", ";", 1), text.replace(" - ", ": ", 1)]
    )


def recased(text: str, chance: random.Random) -> Pair | None:
    return (text, text[0].swapcase() + text[1:]) if text[0].isalpha() else None


def markdown_changed(text: str, chance: random.Random) -> Pair | None:
    return chance.choice(
        [
            (text, text.replace("**", "")),
            (text, "- " + text),
            (text, f"**{text}**"),
            (text, text.replace("`", "")),
            (f"# {text}", text),
        ]
    )


def spaced(text: str, chance: random.Random) -> Pair | None:
    return text, text.replace(" ", chance.choice(["  ", "\n"]), 1)


def tightened(text: str, chance: random.Random) -> Pair | None:
    fitting = [(long, short) for long, short in _TIGHTER if long in text]
    if not fitting:
        return None
    long, short = chance.choice(fitting)
    return text, text.replace(long, short, 1).replace("  ", " ")


def preamble_dropped(text: str, chance: random.Random) -> Pair | None:
    said = chance.choice(
        [
            "Please note that ",
            "It is worth noting that ",
            "I have learned that ",
            "The thing is that ",
            "As mentioned, ",
        ]
    )
    return said + text, text


HARMLESS: dict[str, Planter] = {
    "filler dropped": filler_dropped, "contraction": contracted, "digits for number words": digits_for_words,
    "number words for digits": words_for_digits, "clause moved": clause_moved, "punctuation": punctuated,
    "case": recased, "Markdown": markdown_changed, "white space": spaced, "wordy phrase tightened": tightened,
    "preamble dropped": preamble_dropped,
}  # fmt: skip
