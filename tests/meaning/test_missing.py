"""What a change would lose is named; what only says the same in fewer words is not asked about."""

from __future__ import annotations

import pytest

from app.meaning import ChangeKind, Specific, SpecificKind, compare, missing, missing_of_sources
from app.meaning.reading import Reading

LOSSES = [
    # numbers, with units, and times and dates
    ("number", "The rent is 1,200 euros.", "The rent is 1,250 euros.", "1,200 euros"),
    ("number", "She has three cats.", "She has four cats.", "three"),
    ("number", "He ran 5 km on the beach.", "He ran 5 miles on the beach.", "5 km"),
    ("number", "It holds 20 MB.", "It holds 20 GB.", "20 MB"),
    ("number", "Over 12 million people live there.", "Over 13 million people live there.", "12 million"),
    ("number", "The offset is -5 today.", "The offset is 5 today.", "-5"),
    ("number", "Two wins, then 5 : 3 and 5 : 4.", "Two wins, then 6 : 3 and 5 : 4.", "5"),
    ("number", "The rent is $900 per month.", "The rent is $900 per year.", "per month"),
    ("date", "The trip starts on 13 March.", "The trip starts on 13 May.", "March"),
    ("date", "Born on 2015-10-31.", "Born on 2015-10-30.", "2015-10-31"),
    ("date", "They meet at 6 pm.", "They meet at 6 am.", "6 pm"),
    ("date", "They meet on Tuesday.", "They meet on Thursday.", "Tuesday"),
    # names
    ("name", "She moved to Oslo with Erik.", "She moved to Bergen with Erik.", "Oslo"),
    ("name", "Kathy works here.", "She works here.", "Kathy"),
    ("name", "We met Four Rivers and Blue Hills.", "We met Blue Rivers and Four Hills.", "Four Rivers"),
    ("name", "He flew to New York in May 2011.", "He flew to Old York in May 2011.", "New York"),
    ("name", "Bob and Ted sing. Ted is John's son.", "Bob and someone sing. Ted is John's son.", "Ted"),
    ("name", "Python is slow. Few are Python devs.", "Python is slow. Few are devs.", "Python"),
    ("name", "Kim met Lee. Lee paid for Kim.", "Kim met Lee. Lee paid for a friend.", "Kim"),
    ("name", "From New York by New York Air.", "From New York by New Air.", "New York Air"),
    # to the letter
    ("quote", 'He said "sharp as flint" twice.', 'He said "sharp as glass" twice.', "sharp as flint"),
    ("quote", "He said «plus jamais» to me.", "He said something to me.", "plus jamais"),
    ("identifier", "Set max_tokens first.", "Set max_token first.", "max_tokens"),
    ("identifier", "The model is gpt-5-mini here.", "The model is gpt-4-mini here.", "gpt-5-mini"),
    ("identifier", "Pinned to v1.7.8 since then.", "Pinned to v1.7.9 since then.", "v1.7.8"),
    ("identifier", "Ask @priya_k about #42.", "Ask @priya_m about #42.", "@priya_k"),
    ("address", "See https://a.example/b?c=1 for it.", "See https://a.example/b?c=2 for it.", "https://a.example/b?c=1"),
    ("address", "Write to jo@example.org soon.", "Write to al@example.org soon.", "jo@example.org"),
    ("address", "The list is in docs/house/rules.md now.", "The list is in docs/rules.md now.", "docs/house/rules.md"),
    ("code", "Run `git pull --rebase` first.", "Run `git pull` first.", "git pull --rebase"),
    ("code", "Not `api_key`: the `token` token.", "Not `api_key`: the `toxen` token.", "token"),
    ("emoji", "Signed with 👩‍💻 as ever.", "Signed with 👨‍💻 as ever.", "👩‍💻"),
    # negations
    ("negation", "Do not integrate with Grok.", "Integrate with Grok.", "not integrate"),
    ("negation", "Ada isn't allergic to nuts.", "Ada is allergic to nuts.", "isn't allergic"),
    ("negation", "Avoid manipulative experiments.", "Run manipulative experiments.", "Avoid manipulative"),
    ("negation", "Ada likes tea.", "Ada doesn't like tea.", "likes"),
    ("negation", "Use tea, not coffee.", "Use coffee, not tea.", "not coffee"),
    ("negation", "Don’t tag users who I’m not answering.", "Tag users who I’m not answering.", "Don’t tag"),
    ("negation", "Do not tag users whom I am not answering.", "Do not tag users whom I am answering.", "not answering"),
    ("negation", "It is not open. It is not far.", "It is open. It is not far.", "not open"),
    # modals and hedges
    ("modal", "You should call first.", "You must call first.", "should"),
    ("modal", "You must call first.", "You call first.", "must"),
    ("modal", "Ideally finish before lunch.", "Finish before lunch.", "Ideally"),
    ("modal", "You can call first.", "You must call first.", "can"),
    ("modal", "She has to sign it.", "She signs it.", "has to"),
    ("hedge", "It is probably the cache.", "It is the cache.", "probably"),
    ("hedge", "She might come.", "She comes.", "might"),
    ("hedge", "I think it was the cache.", "It was the cache.", "think"),
    ("hedge", "She usually comes by train.", "She comes by train.", "usually"),
    # opposites and directions
    ("opposite", "Call her before lunch.", "Call her after lunch.", "before"),
    ("opposite", "Sales increased in spring.", "Sales decreased in spring.", "increased"),
    ("opposite", "Enable the cache.", "Disable the cache.", "Enable"),
    ("opposite", "Server-side only.", "Server-side.", "only"),
    ("opposite", "All tests pass.", "Some tests pass.", "All"),
    ("opposite", "She likes jazz.", "She hates jazz.", "likes"),
    ("opposite", "The door on the left.", "The door on the right.", "left"),
    # tense
    ("tense", "Ada works at the mill.", "Ada worked at the mill.", "works"),
    ("tense", "The limit was low.", "The limit is low.", "was"),
    ("tense", "He went there often.", "He goes there often.", "went"),
    # order
    ("order", "Alice gave Bob a book.", "Bob gave Alice a book.", "Alice gave Bob"),
    ("order", "She went from Oslo to Rome.", "She went from Rome to Oslo.", "Oslo to Rome"),
    ("order", "There are 5 apples and 7 pears.", "There are 7 apples and 5 pears.", "5 apples and 7"),
    ("tense", "Vic used to live in Porto.", "Vic lives in Porto.", "used to"),
    ("tense", "The site is temporarily closed.", "The site is closed.", "temporarily"),
    # ordinals, and what goes with a phrase
    ("number", "Nadia is his second wife.", "Nadia is his wife.", "second"),
    ("modal", "You don't have to reply.", "You must not reply.", "don't have to"),
    ("sentence", "Sign commits for the core repo.", "Sign commits.", "for the core repo"),
    ("order", "Moved from Jenkins to Blue Harbour.", "Moved from Blue Harbour to Jenkins.", "Jenkins to Blue Harbour"),
    # states
    ("state", "Mia is pregnant and avoids alcohol.", "Mia avoids alcohol.", "pregnant"),
    ("state", "It was a bittersweet goodbye.", "It was a goodbye.", "bittersweet"),
    # another word in the same place
    ("content", "Mia is allergic to peanuts.", "Mia is fine with peanuts.", "allergic"),
    ("content", "The backup job is slow.", "The backup job is empty.", "slow"),
    ("number", "Her second child is called Ivo.", "Her child is called Ivo.", "second"),
    ("content", "Grandpa is shaky but walks daily.", "Grandpa walks daily.", "shaky"),
    # whose it is
    ("content", "The client's lawyer wrote on Monday.", "The client wrote on Monday.", "client's lawyer"),
    ("content", "My creator's birthday is in May.", "My birthday is in May.", "creator's birthday"),
    # quantities, bounds, and what a perfect or a conditional hides
    ("opposite", "Every commit is signed.", "Almost every commit is signed.", "Every"),
    ("opposite", "Use up to 4 workers.", "Use over 4 workers.", "up to"),
    ("opposite", "Send no more than 72 letters.", "Send more than 72 letters.", "no more than"),
    ("opposite", "Restart all of the workers.", "Restart one of the workers.", "all"),
    ("opposite", "Her husband sails.", "Her brother sails.", "husband"),
    ("tense", "He has moved to Bath.", "He had moved to Bath.", "has"),
    ("negation", "Use spaces rather than tabs.", "Use spaces and tabs.", "rather than tabs"),
    # short phrases
    ("sentence", "He runs during the week.", "He runs.", "during the week"),
    ("sentence", "The alarm is on outside business hours.", "The alarm is on.", "outside business hours"),
    ("sentence", "Keep the key in the vault.", "Keep the key.", "in the vault"),
    # sentences, conditions, reasons and exceptions
    ("sentence", "Deploy on Friday if the build is green.", "Deploy on Friday.", "if the build is green"),
    ("sentence", "She left because her son was ill.", "She left.", "because her son was ill"),
    ("sentence", "Ada likes tea. The garden needs fresh water.", "Ada likes tea.", "The garden needs fresh water"),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "old", "new", "words"), LOSSES)
def test_a_loss_is_named_with_its_words_as_they_stand(kind: str, old: str, new: str, words: str) -> None:
    assert Specific(SpecificKind(kind), words) in missing(old, new, kind=ChangeKind.UPDATE)


HARMLESS = [
    ("It really is just the cache.", "It is the cache."),
    ("Do not push to main.", "Don't push to main"),
    ("She cannot eat nuts.", "She can't eat nuts."),
    ("She has five cats.", "She has 5 cats."),
    ("She has one cat.", "She has a cat."),
    ("Twenty five people in two rooms.", "25 people in 2 rooms."),
    ("If it rains, Ada stays at home.", "Ada stays at home if it rains."),
    ("Alice likes tea. Alice has a cat.", "Alice likes tea and has a cat."),
    ("Alice likes tea. Alice has a cat.", "Alice likes tea. She has a cat."),
    ("Alice sold Alice's boat.", "Alice sold her boat."),
    ("When Alice calls, Bob answers.", "Bob answers when Alice calls."),
    ("**Deploy rule:** use `uv`, always.", "Deploy rule: use uv, always"),
    ("Label: `bug`", "label: `bug`"),
    ("It starts at 6 pm on 31 October 2015.", "It starts at 18:00 on 2015-10-31."),
    ("There is one report per month.", "There is one monthly report."),
    ("The user likes their meetings to be scheduled in the morning.", "User likes morning meetings."),
    ("It costs $5, or 1,000 yen.", "It costs 5 dollars, or 1000 yen."),
    ("It takes 20 minutes and 8 GB.", "It takes 20 min and 8GB."),
    ("She may come.", "She might come."),
    ("He often walks.", "He usually walks."),
    ("You have to sign it.", "You must sign it."),
    ("It is not available.", "It is unavailable."),
    ("I have learned that Ada prefers tea.", "Ada prefers tea."),
    ("You can use `uv` in order to install it.", "Use `uv` to install it."),
    ("Ada said “never again”.", 'Ada said "never again"'),
    ("Never push to main; open a pull request.", "Never push to main; always open a pull request."),
    ("The team made a decision to use Postgres.", "The team decided to use Postgres."),
    ("The user's favourite colour is green.", "The user's favorite color is green."),
    ("Vera purchased a big house.", "Vera bought a large house."),
    ("It is used to store tokens.", "It stores tokens."),
    ("You must not push to main.", "Never push to main."),
    ("The script was written by Omar.", "Omar wrote the script."),
    ("Ada is 34 years old.", "Ada is 34."),
    ("Some notes about Ada: likes tea.", "Ada: likes tea"),
    ("Rules:\n1. Run the tests.\n2. Ask Rosa.", "Rules: run the tests; ask Rosa."),
    ("In the event that the build fails, ask Rosa.", "If the build fails, ask Rosa."),
    ("He died on 17 August in Bath.", "He died on August 17 in Bath."),
    ("Ada flew from the city of York.", "Ada flew from York city."),
    ("Harbour Watch and Grain Watch met.", "Grain Watch and Harbour Watch met."),
    ("We met José in County Cork.", "We met Jose in the county of Cork."),
    ("It starts at 7:15 pm.", "It starts at 19:15."),
    ("The shop doesn't open today.", "The shop is closed today."),
    ("It should be noted that Ada sails.", "Ada sails."),
    ("Petra's uncle is the owner of the bakery.", "Petra's uncle owns the bakery."),
    ("She was born in 1990 in Split.", "She was born in Split in 1990."),
    ("Vic quit his job in May.", "Vic left his job in May."),
    ("Ada, Bob and Eva visited Rome.", "Eva, Ada and Bob visited Rome."),
    ("See docs/rules.md (max_tokens).", "See `docs/rules.md` (`max_tokens`)."),
    ("You must call first.", "Call first."),
    ("All tests have to be run before pushing.", "Before pushing, run all tests."),
    ("It is necessary to restart the worker.", "Restart the worker."),
    ("If there are conflicts, the branch needs to be rebased.", "If there are conflicts, rebase the branch."),
    ("The team uses a kind of tea from Oslo.", "The team uses a tea from Oslo."),
    ("She has been diagnosed with asthma.", "She was diagnosed with asthma."),
    ("Deploy once the checks have passed.", "Deploy once the checks pass."),
    ("Lotte was playing in a band.", "Lotte played in a band."),
    ("He made a promise to call.", "He promised to call."),
    ("We are planning to switch in May.", "We plan to switch in May."),
    ("Don't use `any`; use `unknown` in its place.", "Don't use `any`; use `unknown` instead."),
    ("Send no more than 72 letters.", "Send at most 72 letters."),
    ("He does not want any advice.", "He wants no advice."),
    ("The old wiki is no longer used.", "We no longer use the old wiki."),
    ("Merge commits are not permitted.", "Merge commits are not allowed."),
    ("Don't forget to call Rosa.", "Remember to call Rosa."),
    ("Rules for Ada. It should be noted that she sails.", "Rules for Ada. She sails."),
    ("When it comes to pets, Ada has a dog.", "Ada has a dog."),
    ("She moved right after lunch.", "She moved after lunch."),
    ("The upload was successful.", "The upload succeeded."),
    ("The wifi is not reliable.", "The wifi is unreliable."),
]


@pytest.mark.parametrize(("old", "new"), HARMLESS)
def test_what_only_reads_better_is_not_asked_about(old: str, new: str) -> None:
    assert missing(old, new, kind=ChangeKind.UPDATE) == []


def test_the_comparison_is_one_sided() -> None:
    assert missing("Ada likes tea.", "Ada likes tea, has 3 cats and lives in Oslo.", kind=ChangeKind.UPDATE) == []


def test_in_a_long_sentence_another_word_may_be_a_synonym() -> None:
    old = "The two crews examined every engine, pump, valve, gauge, filter, cable, fuse and lamp aboard their ferry."
    assert missing(old, old.replace("ferry", "vessel"), kind=ChangeKind.UPDATE) == []


def test_an_update_may_lose_content_words_and_a_deletion_may_not() -> None:
    old, new = "Ada enjoys walking along quiet rivers.", "Ada enjoys walking along rivers."
    assert missing(old, new, kind=ChangeKind.UPDATE) == []
    assert missing("Warm quiet evenings.", "Warm evenings.", kind=ChangeKind.DELETE) == [
        Specific(SpecificKind.CONTENT, "quiet")
    ]


@pytest.mark.parametrize("kind", [ChangeKind.CONSOLIDATE, ChangeKind.DELETE])
def test_four_of_five_content_words_are_enough_and_three_of_four_are_not(kind: ChangeKind) -> None:
    assert missing("river boats pass green hills", "river boats pass green", kind=kind) == []
    assert missing("boats pass green hills", "boats pass green", kind=kind) == [Specific(SpecificKind.CONTENT, "hills")]


def test_with_fewer_than_three_content_words_all_must_be_there() -> None:
    assert missing("green hills", "green", kind=ChangeKind.DELETE) == [Specific(SpecificKind.CONTENT, "hills")]
    assert missing("green hills", "hills, and green", kind=ChangeKind.DELETE) == []


def test_a_text_without_content_words_must_stand_in_its_carrier_word_for_word() -> None:
    assert missing("There it is again", "The boats pass.", kind=ChangeKind.DELETE) != []
    assert missing("There it is again", "And there it is again", kind=ChangeKind.DELETE) == []


def test_each_source_of_a_merge_is_held_to_the_rule_by_itself() -> None:
    sources = ["Ada has 3 cats in Oslo, and a boat, and a garden with apple trees.", "Ada sails."]
    lost = missing_of_sources(sources, sources[0], kind=ChangeKind.CONSOLIDATE)
    assert lost == [Specific(SpecificKind.CONTENT, "sails")]
    assert missing_of_sources(sources, " ".join(sources), kind=ChangeKind.CONSOLIDATE) == []


def test_what_a_merge_says_of_another_source_does_not_count_against_one() -> None:
    sources = ["Ada likes tea.", "Ada doesn't like coffee."]
    merged = "Ada likes tea and doesn't like coffee."
    assert missing_of_sources(sources, merged, kind=ChangeKind.CONSOLIDATE) == []


def test_two_sources_that_negate_the_same_word_can_be_joined() -> None:
    sources = ["Don't create agents by hand.", "The setup script doesn't create a config file."]
    assert missing_of_sources(sources, " ".join(sources), kind=ChangeKind.CONSOLIDATE) == []


def test_a_missing_quotation_is_named_once_and_not_by_its_parts_too() -> None:
    lost = missing('He said "meet Bob at 5" to me.', "He said it to me.", kind=ChangeKind.UPDATE)
    assert lost == [Specific(SpecificKind.QUOTE, "meet Bob at 5")]


def test_rubbish_of_the_same_length_is_asked_about() -> None:
    old = "Search the archive before substantive answers, to build on what was said."
    assert missing(old, "lorem " * (len(old) // 6), kind=ChangeKind.UPDATE) != []


@pytest.mark.parametrize(
    ("old", "carrier", "lost"),
    [
        ("Я не люблю кофе, но люблю чай.", "Я не люблю кофе, но люблю чай и воду.", False),
        ("Я не люблю кофе, но люблю чай.", "Вчера шёл дождь.", True),
        ("لا أحب القهوة بعد الساعة 6", "لا أحب القهوة بعد الساعة 6 مساء", False),
        ("لا أحب القهوة بعد الساعة 6", "لا أحب القهوة بعد الساعة 7 مساء", True),
        ("我不喜欢晚上喝咖啡", "我不喜欢晚上喝咖啡和茶", False),
        ("我不喜欢晚上喝咖啡", "今天下雨了", True),
        ("मुझे चाय बहुत पसंद है", "कल बारिश हुई थी", True),
    ],
)
def test_content_words_are_compared_in_every_language(old: str, carrier: str, lost: bool) -> None:
    assert bool(missing(old, carrier, kind=ChangeKind.DELETE)) is lost


GOOD_CHANGES = [
    # an assistant's facts about people
    (["Maria is allergic to peanuts.", "Maria has a peanut allergy and carries an EpiPen."],
     "Maria is allergic to peanuts: she has a peanut allergy and carries an EpiPen."),
    (["As far as I can tell, Tom really likes hiking in the Alps."],
     "As far as I can tell, Tom likes hiking in the Alps."),
    # a coding agent's rules
    (["Always run `make test` before pushing.", "Before pushing, always run `make test` and `make lint`."],
     "Always run `make test` and `make lint` before pushing."),
    (["It is important to note that the CI uses Python 3.11."], "The CI uses Python 3.11."),
    # a companion's memories
    (["On 3 May we watched the rain together.", "We watched the rain together on 3 May, and he said \"stay\"."],
     "On 3 May we watched the rain together, and he said \"stay\"."),
]  # fmt: skip


@pytest.mark.parametrize(("sources", "new"), GOOD_CHANGES)
def test_a_good_model_is_not_asked(sources: list[str], new: str) -> None:
    kind = ChangeKind.CONSOLIDATE if len(sources) > 1 else ChangeKind.UPDATE
    assert missing_of_sources(sources, new, kind=kind) == []


def test_what_was_checked_is_counted_alike_whether_or_not_something_is_missing() -> None:
    old = 'Ann must not pay 5 euros on Monday; she said "never again" and ran `make all`.'
    kept, lost = (compare(old, new, kind=ChangeKind.UPDATE) for new in (f"{old} Really.", "Hello."))

    assert not kept.missing
    assert kept.checked == len(list(Reading(old).named_specifics())) > 5
    assert lost.checked >= kept.checked
