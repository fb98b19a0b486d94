"""Live topics that triggers read. Each is followed while at least one trigger names it. Pure."""

from collections import Counter
from collections.abc import Container

from relay.triggers.commands import Follow


class FollowedTopics:
    def __init__(self) -> None:
        self._by_trigger: dict[str, tuple[str, ...]] = {}
        self._triggers_of: Counter[str] = Counter()

    def follow(self, name: str, wanted: tuple[str, ...]) -> list[Follow]:
        """From now on, the trigger `name` reads exactly these topics."""
        before = self._by_trigger.get(name, ())
        if before == wanted:
            return []
        if wanted:
            self._by_trigger[name] = wanted
        else:
            del self._by_trigger[name]
        started = [topic for topic in wanted if not self._triggers_of[topic]]
        self._triggers_of.update(wanted)
        self._triggers_of.subtract(before)
        ended = [topic for topic in before if self._triggers_of[topic] <= 0]
        for topic in ended:
            del self._triggers_of[topic]
        return [Follow(topic, True) for topic in started] + [Follow(topic, False) for topic in ended]

    def drop_others(self, names: Container[str]) -> list[Follow]:
        """Drop the topics of triggers that are not among `names`."""
        gone = [name for name in self._by_trigger if name not in names]
        return [command for name in gone for command in self.follow(name, ())]
