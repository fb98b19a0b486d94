"""Bounds on what one trigger may ask for. Texts past a bound are refused; work past a bound is stopped."""

from dataclasses import dataclass

from candlewright_cep.errors import TriggerRejected

# Characters of one text that a function makes (a longer one is NULL), and bytes of everything that one step makes.
MADE_TEXT = 10_000
MADE_TEXTS = 256 * 2**20


@dataclass(kw_only=True, frozen=True, slots=True)
class Limits:
    text_bytes: int = 64 * 1024
    tokens: int = 12_000
    literal_characters: int = 2_000
    depth: int = 120
    variables: int = 60
    permuted: int = 6
    repetitions: int = 1_000
    instructions: int = 6_000
    offset: int = 100_000
    # For one match, on top of a few for each of its rows.
    steps_per_match: int = 1_000_000
    # For one input, or one batch of a stream: a base, and so much more for each row.
    steps_per_batch: int = 2_500_000
    steps_per_row: int = 100
    seconds_per_batch: float = 2.0
    seconds_per_row: float = 1e-4
    mapped_rows: int = 30_000_000
    joined_rows: int = 50_000_000
    retained_rows: int = 1_000_000
    # That one operator of a stream keeps at a time.
    partitions: int = 50_000
    # That a text joins by time on a stream: each keeps rows of its own.
    joined_inputs: int = 16
    # Of a query whose WITH queries stand where they are read: tables and sub-queries that it reads.
    sources: int = 500
    # Registered views that a text reads, those that its views read included; and how many may build on one another.
    views: int = 100
    view_depth: int = 20
    columns: int = 1_000


DEFAULT = Limits()


def check_made(size: int) -> None:
    """Raises TriggerRejected where a step makes more bytes of text than memory is for."""
    if size > MADE_TEXTS:
        raise TriggerRejected(f"the texts made in one step have more than {MADE_TEXTS} bytes in all")
