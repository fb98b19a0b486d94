"""Which triggers are registered."""

from itertools import count

from candlewright.wire import candlewright_pb2 as cw
from protobuf import records_pb2 as rec
from relay.triggers.book import Registered, TriggerBook

NUMBERS = count(1)


def entry(name: str, **fields: object) -> rec.TriggerEntry:
    found = rec.TriggerEntry(registration=rec.TriggerRegistration(trigger_id=name, callback_id="c", sql="s"))
    for field, value in fields.items():
        setattr(found, field, value)
    return found


def put(book: TriggerBook, entry: rec.TriggerEntry, *, is_passed: bool = True) -> Registered:
    trigger = Registered(entry, False, False, next(NUMBERS), entry.ByteSize(), is_passed)
    book.put(trigger)
    return trigger


def test_the_newest_form_replaces_the_one_before() -> None:
    book = TriggerBook()
    first = put(book, entry("a"))
    second = put(book, entry("a", suspended_reason="r"))
    assert (len(book), book.size_bytes, book.get("a")) == (1, second.size, second)
    assert book.of_change(first.change) is None
    assert book.newest(second.change) is second
    assert book.counts() == {"active": 0, "starting": 0, "suspended": 1}
    assert len(book.suspensions) == 1


def test_a_trigger_with_a_later_change_is_not_dropped() -> None:
    book = TriggerBook()
    before = put(book, entry("a", is_leaving=True))
    after = put(book, entry("a"))
    assert book.drop(before.change) is None
    assert "a" in book
    assert book.drop(after.change) == "a"
    assert (len(book), book.size_bytes, book.callbacks) == (0, 0, {})


def test_callbacks_outlive_the_book_until_it_is_read_again() -> None:
    book = TriggerBook()
    put(book, entry("a"))
    put(book, entry("b"))
    book.clear()
    assert (len(book), set(book.callbacks)) == (0, {"a", "b"})
    put(book, entry("b"))
    book.drop_callbacks()
    assert book.callbacks == {"b": "c"}


def test_a_page_holds_the_triggers_that_fit_and_at_least_one() -> None:
    book = TriggerBook()
    for name in "bca":
        put(book, entry(name))
    put(book, entry("d"), is_passed=False)
    put(book, entry("e", is_leaving=True))
    first = book.page(cw.TriggerQuery(), "", 1)
    assert ([each.trigger_id for each in first.triggers], first.has_more) == (["a"], True)
    rest = book.page(cw.TriggerQuery(after_trigger_id="a", include_starting=True), "", 10_000)
    assert ([each.trigger_id for each in rest.triggers], rest.has_more) == (["b", "c", "d"], False)
    assert [each.is_starting for each in rest.triggers] == [False, False, True]
    assert not book.page(cw.TriggerQuery(trigger_id="a"), "other", 10_000).triggers
