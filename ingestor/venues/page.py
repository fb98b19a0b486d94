"""docs/venues.md, made from the venues' files."""

from collections.abc import Iterator

from ingestor.venues.default import OTHER
from ingestor.venues.described import files
from ingestor.venues.description import CandleSource, NewestTrades, Stream, VenueDescription
from ingestor.venues.limits import Limits

_HEAD = """# Venues

<!-- Made by `python -m ingestor.venues > docs/venues.md`; a test keeps it equal to the files in ingestor/venues. -->

What the ingestor knows about each exchange. Any other exchange that ccxt supports can be used as a venue too, through
ccxt's unified calls: history and snapshots, no live trades, nothing verified. CONTRIBUTING.md describes how to add a
venue.

Whatever an exchange sends, a candle is stored only once the exchange's own clock has passed its close."""


def page() -> str:
    described = [(module.VENUE, (module.__doc__ or "").strip()) for module in files()]
    venues = [venue for venue, _ in described]
    parts = [
        _HEAD,
        "## Candles",
        _table(
            (
                "venue",
                "ccxt class",
                "candles per page",
                "a full page starts with the",
                "kept",
                "unfinished candle marked by",
            ),
            [*map(_candle_row, venues), _candle_row(OTHER)],
        ),
        "## Live trades",
        _table(
            ("venue", "ids", "a missed trade is repaired from", "between subscriptions"),
            [_stream_row(venue.name, venue.stream) for venue in venues if venue.stream is not None],
        ),
        "## Limits",
        "All ingestors behind one address together use `ingestor.budget_share` of these limits.",
        _table(
            ("venue", "allowed", "counted separately", "weights", "statuses that also mean stop"),
            [*(_limit_row(venue.name, venue.limits) for venue in venues), _limit_row(OTHER.name, OTHER.limits)],
        ),
        *("\n\n".join(_section(venue, about)) for venue, about in described),
    ]
    return "\n\n".join(parts) + "\n"


def _table(head: tuple[str, ...], rows: list[tuple[str, ...]]) -> str:
    lines = [head, tuple("---" for _ in head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _candle_row(venue: VenueDescription) -> tuple[str, ...]:
    candles = venue.candles
    fill = candles.fill.value.removesuffix(" first")
    size = str(candles.max_candles) if venue.name else f"{candles.max_candles}, or ccxt's limit"
    ccxt_class = f"`{venue.ccxt_id}`" if venue.ccxt_id else "of that name"
    return (venue.name or "any other", ccxt_class, size, fill, _depth(candles), candles.closing.value)


def _depth(candles: CandleSource) -> str:
    if candles.ask is None:
        return "unknown"
    if not candles.depth:
        return "all"
    older = "; older ones are built from trades" if candles.older is not None else ""
    return f"the newest {candles.depth}{older}"


def _stream_row(name: str, stream: Stream) -> tuple[str, ...]:
    ids = "count up by one" if stream.is_dense else "may jump"
    return (name, ids, _repair(stream), f"{stream.subscribe_pause} s")


def _repair(stream: Stream) -> str:
    if not isinstance(stream.repair, NewestTrades):
        return "all trades, by a cursor"
    newest = "the newest page"
    return newest if stream.repair.aggregates is None else f"{newest}; the bars of older ones from aggregates"


def _limit_row(name: str, limits: Limits) -> tuple[str, ...]:
    allowed = limits.allowance
    apart = ", ".join(
        f"{call.value}: {each.limit:g} in {each.window_seconds:g} s" for call, each in limits.apart.items()
    )
    return (
        name or "any other",
        "as ccxt's limiter"
        if allowed is None
        else f"{allowed.limit:g} {allowed.bucket} in {allowed.window_seconds:g} s",
        apart or "nothing",
        ", ".join(f"{call.value} {cost:g}" for call, cost in limits.costs.items()) or "1 a call",
        ", ".join(f"{status}, for {seconds:g} s" for status, seconds in limits.pauses.items()) or "nothing",
    )


def _section(venue: VenueDescription, about: str) -> Iterator[str]:
    yield f"## {venue.name}"
    yield about
    if venue.lies:
        yield "Answers that look right but are not:"
        yield "\n".join(f"- {flaw.what} ([source]({flaw.link}))" for flaw in venue.lies)
    yield "Verified on recorded data:"
    proofs = [f"- {proof.what} (`{proof.test}`)" for proof in venue.verified]
    yield "\n".join(proofs) or "- nothing"
    yield "Not verified on recorded data:"
    yield "\n".join(f"- {each}" for each in venue.unverified) or "- nothing"
