"""Registered and built-in views: which of them a text reads, how they depend on each other, and their limits."""

from collections.abc import Callable, Mapping

from candlewright_cep.binding.recovery import strictly
from candlewright_cep.errors import TriggerRejected
from candlewright_cep.limits import Limits
from candlewright_cep.planning.plans import Plan
from candlewright_cep.syntax.query_parser import parse_view
from candlewright_cep.syntax.slips import hinted
from candlewright_cep.syntax.tokens import Position
from candlewright_cep.syntax.tree import ViewNode

__all__ = ["Views"]


class Views:
    """`texts`: the texts of views by name; `built_in` returns that of a view that exists without being registered, or
    None. Only those that are read are checked, and each is planned once.
    """

    def __init__(self, texts: Mapping[str, str], limits: Limits, built_in: Callable[[str], str | None]) -> None:
        self._texts = {name.lower(): (name, text) for name, text in texts.items()}
        self._limits = limits
        self._built_in = built_in
        self._plans: dict[str, Plan] = {}
        self._open: list[str] = []
        self._text_bytes = 0

    def __contains__(self, name: str) -> bool:
        return name.lower() in self._texts or self._built_in(name.lower()) is not None

    @property
    def names(self) -> tuple[str, ...]:
        """The names of the registered views that were read, sorted."""
        return tuple(sorted(self._texts[name][0] for name in self._plans if name in self._texts))

    def has_read_built_in(self, name: str) -> bool:
        return name in self._plans and name not in self._texts

    def name_of(self, name: str) -> str:
        """The view's name as it was registered."""
        key = name.lower()
        return self._texts[key][0] if key in self._texts else key

    @property
    def known(self) -> list[str]:
        return [name for name, _ in self._texts.values()]

    def plan(self, name: str, at: Position, planned: Callable[[ViewNode], Plan]) -> Plan:
        """The plan of a view. `planned` makes it when the view is first read; `at` is where it is read. Raises
        TriggerRejected at that position for an error in the view's text.
        """
        key = name.lower()
        known = self._plans.get(key)
        if known is not None:
            return known
        written, text = self._texts.get(key) or (key, self._built_in(key) or "")
        if key in self._open:
            circle = [*self._open[self._open.index(key) :], key]
            raise at.reject(f"the view '{written[:60]}' reads itself: {' -> '.join(circle)}")
        if len(self._open) >= self._limits.view_depth:
            raise at.reject(f"more than {self._limits.view_depth} views build on one another")
        if len(self._plans) + len(self._open) >= self._limits.views:
            raise at.reject(f"the text reads more than {self._limits.views} views")
        self._text_bytes += len(text.encode())
        if self._text_bytes > self._limits.text_bytes:
            raise at.reject(f"the views that the text reads have more than {self._limits.text_bytes} bytes in total")
        self._open.append(key)
        try:
            with strictly():
                self._plans[key] = planned(parse_view(text, self._limits))
        except TriggerRejected as error:
            place = f"in the view '{written[:60]}' at {error.line}:{error.column}: "
            # An error in a view that this view reads already names that view.
            said = error.message if error.message.startswith("in the view ") else place + error.message
            raise at.reject(said, hinted(error, text).hint) from None
        finally:
            self._open.pop()
        return self._plans[key]
