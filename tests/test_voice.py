"""Prose reads as a native technical writer would write it: the plainest phrases to avoid, and what to write instead."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conftest import PACKAGES, ROOT

#: Folders and files.
PROSE = (
    *("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md"),
    *PACKAGES,
    *("clients", "distributions", "docs", "examples", "tests"),
)
SUFFIXES = (".lua", ".md", ".proto", ".py", ".ts", ".tsx")
#: Pattern of a phrase, and the better wording.
PHRASES = {
    r"(?<!there )(?:is|are|was|were) no (?!longer\b|other\b)\w": "is not a …, has no …",
    r"(?:is|are|was|were) told\b": "is notified, gets, is reported to",
    r"(?:lies|lie|lay) (?:in|on|at|behind|before|within|beside)\b": "is in, is on",
    r"stands? (?:in|at|beside|behind|before)\b": "is in, is next to",
    r"(?:let|lets|letting) go of\b": "forget, release, drop",
    r"whoever\b": "the client that …, any process that …",
    r"all the same(?=[.,;:)])": "anyway",
    r"(?-i:[Nn]obody|[Ss]omebody)\b(?!\")": "no client, no one; a client, someone",
    r"shall\b": "must, should, or the present tense",
    r"goes on\b": "continues",
    r"behind (?:it|them)\b": "after it, after them",
    r"of others\b": "external, other clients'",
    r"is said\b": "is reported, is sent",
    r"for ever\b": "forever, permanently, without limit",
    r"(?:asked|begins?|built|drawn|given|made|read|subscribes?|written) anew\b": "again, afresh; recreated",
    r"asked for again\b": "requested again",
    r"(?:is|are|was|were) looked at\b": "is checked, is examined",
    r"(?:is|are|was|were) let in\b": "is accepted, may connect",
    r"(?:bus|broker|server|store|table|it) is away\b": "is down, cannot be reached",
    r"pass(?:ed|es) over\b": "skipped, ignored",
    r"(?:puts|put|is put|was put) out\b": "emits, is emitted",
    r"tried again\b": "retried",
    r"seldom\b": "rarely, at growing intervals",
    r"what bec(?:ame|omes) of\b": "the outcome of, what happens to",
    r"runs? no more\b": "has stopped",
    r"(?:for|after) so long\b": "for this long",
    r"(?:is to be|cannot be|can be) had\b": "is available, cannot be fetched",
    r"as far as is known\b": "as far as known",
    r"whatever (?:becomes?|became) of\b": "whatever its outcome",
    r"in (?:a thread|threads) of (?:its|their) own\b": "in a separate thread",
    r"counted? for (?:itself|themselves)\b": "has its own limit, is counted separately",
    r"(?:was|were) reckoned\b": "was estimated",
    r"inside of\b": "inside",
    r"(?:bring|brings|brought) about\b": "cause, lead to",
    r"whatever bec(?:ame|omes) of\b": "whatever happens to",
    r"not to be (?:had|reached)\b": "is not available, cannot be reached",
    r"told apart\b": "distinguished",
    r"in vain\b": "without effect, wasted",
    r"makes? no sense\b": "is invalid",
    r"cannot do with(?:out)?\b": "refuses, needs",
    r"what mends\b": "the fix",
    r"(?:the )?last resort\b": "any other error is logged and retried",
    r"on and on\b": "continuously",
    r"that there (?:is|are) not\b": "that does not exist",
    r"(?:is|are) of (?:no )?use\b": "is useful, is not available",
    r"hears? nothing\b": "gets no answer",
    r"(?:it|they) (?:is|are) looked for\b": "it is searched, they are searched",
    r"in order of time\b": "in time order",
    r"again and again\b": "repeatedly",
    r"beside other work\b": "on a busy machine",
}
#: The same in the names of tests, which state behaviour in the field's terms.
NAME_PHRASES = {
    r"who(?:ever)?": "the client, part or process",
    r"told": "reported, notified",
    r"(?:is|are|was|were)_no_(?!longer|other|one)": "is not a …",
    r"(?:goes|go|went)_on(?!_the_bus)": "continues",
    r"(?:nobody|somebody|anybody|everybody)": "no client, a client",
    r"anew": "again, afresh",
    r"lets?_go": "drops, releases",
    r"says?_so": "reports it",
    r"passed_over": "skipped",
    r"asked_for": "requested",
    r"(?:all_the_same|in_vain|for_ever)": "anyway; without an answer; forever",
    r"^(?:what|it|of)": "a subject: the client, the record, the bars of …",
    r"whatever_(?:becomes|became|comes)": "whether or not it succeeds",
    r"(?:is|are|was|were)_(?:had|looked_at|put_out|said|tried_again|warned_of)": "fetched, examined, emitted, reported",
    r"(?:bus|broker|server|store|that)_(?:is|are|stays)_away": "down, unreachable",
    r"that_(?:is|are)_none": "that is not a …, an invalid …",
    r"that_there_(?:is|are)_not": "unknown, that does not exist",
    r"inner_topics": "internal topics",
    r"of_(?:its|their)_own": "its own, separate",
    r"(?:mended|for_good)": "corrected, permanently",
    r"(?:order_of_time|again_and_again)": "time order; repeatedly",
    r"(?:says?|tells?)_nothing(?:_more)?": "sends nothing",
}
TEST_NAME = re.compile(r"^ *(?:async )?def test_(\w+)\(", re.MULTILINE)
CHECKS = [(re.compile(rf"\b{pattern}", re.IGNORECASE), better) for pattern, better in PHRASES.items()]
#: All of them in one search of a text in lower case, which is three times as fast; most texts need no other.
ANY = re.compile(rf"\b(?:{'|'.join(PHRASES)})")
NAME_CHECKS = [(re.compile(rf"(?:^|_)({pattern})(?:_|$)"), better) for pattern, better in NAME_PHRASES.items()]


def files() -> Iterator[Path]:
    for name in PROSE:
        path = ROOT / name
        for file in [path] if path.is_file() else path.rglob("*"):
            is_own = file != Path(__file__) and not file.stem.endswith("_pb2") and "node_modules" not in file.parts
            if is_own and file.suffix in SUFFIXES:
                yield file


def faults(text: str) -> list[str]:
    # Phrases may span lines, and the lines of a comment.
    joined = re.sub(r"\s+(?:(?:#:?|//|--|\*) )?\s*", " ", text)
    if not ANY.search(joined.lower()):
        return []
    return [
        f"…{joined[max(0, found.start() - 40) : found.end() + 20]}… → write: {better}"
        for check, better in CHECKS
        for found in check.finditer(joined)
    ]


def test_prose_has_no_phrase_that_readers_must_decode() -> None:
    found = [f"{file.relative_to(ROOT)}: {fault}" for file in files() for fault in faults(file.read_text())]
    assert not found, "\n".join(found)


def name_faults(source: str) -> list[str]:
    return [
        f"test_{name} → write: {better}"
        for name in TEST_NAME.findall(source)
        for check, better in NAME_CHECKS
        if check.search(name)
    ]


def test_names_of_tests_are_plain_statements() -> None:
    found = {
        file.relative_to(ROOT): faults
        for file in (ROOT / "tests").rglob("test_*.py")
        if (faults := name_faults(file.read_text()))
    }
    assert not found, "\n".join(f"{file}: {', '.join(faults)}" for file, faults in found.items())


def test_a_name_that_readers_must_decode_is_found() -> None:
    assert name_faults("def test_who_waits_is_served() -> None:")
    assert name_faults("    async def test_a_request_goes_on() -> None:")
    assert name_faults("def test_what_was_lost_is_sent_again() -> None:")
    assert not name_faults("def test_the_plan_states_what_its_rows_wait_for() -> None:")
    assert not name_faults("def test_a_key_is_no_longer_accepted() -> None:")


def test_files_are_found() -> None:
    assert len(list(files())) > 150


@pytest.mark.parametrize(
    "text",
    [
        "'BTCUSDT' is no ticker",
        "its owner is\n    told at once",
        "# The ticks are on the bus all\n# the same; it saves.",
        "// bars that are\n// told",
        "Whoever is late waits",
    ],
)
def test_a_fault_is_found_over_lines(text: str) -> None:
    assert faults(text)


@pytest.mark.parametrize(
    "text",
    [
        "there is no topic",
        "it is no longer read",
        "rows of all the same width",
        'labels("nobody")',
        "a row stands for one trade",
        "names, somebodyelse",
    ],
)
def test_plain_prose_is_left_alone(text: str) -> None:
    assert not faults(text)
