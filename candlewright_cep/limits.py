"""Limits of one trigger. Texts that exceed a limit are rejected; work that exceeds one is stopped."""

from dataclasses import dataclass

# The most characters of one text that a function makes (a longer one is NULL). The most bytes of all texts and arrays
# made in one step: a base, plus an allowance for each of its rows.
MADE_TEXT = 10_000
MADE_TEXTS, MADE_A_ROW = 256 * 2**20, 4096


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
    # Rows of a match that conditions name with FIRST(A.x, n) and LAST(A.x, n), together.
    named_rows: int = 200
    # Per match, on top of a few for each of its rows.
    steps_per_match: int = 1_000_000
    # Per input, or per batch of a stream: a base, plus an allowance for each row.
    steps_per_batch: int = 2_500_000
    steps_per_row: int = 100
    seconds_per_batch: float = 2.0
    seconds_per_row: float = 1e-4
    mapped_rows: int = 30_000_000
    joined_rows: int = 50_000_000
    retained_rows: int = 1_000_000
    # The most that one operator of a stream keeps at a time.
    partitions: int = 50_000
    # The most inputs that a text may join by time on a stream: each keeps its own rows.
    joined_inputs: int = 16
    # The most tables and sub-queries that a query reads, with its WITH queries counted wherever they are read.
    sources: int = 500
    # Registered views that a text reads, directly or through other views; and how deeply views may build on each other.
    views: int = 100
    view_depth: int = 20
    columns: int = 1_000
    # The most calendars of exchanges that a text names: each is loaded when it is first named.
    calendars: int = 8


DEFAULT = Limits()
