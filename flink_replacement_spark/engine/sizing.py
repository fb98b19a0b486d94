"""When a query whose tasks do not end starts again with another number of them, because executors came or went.

A task whose executor is lost runs elsewhere at once if a core is free, and otherwise waits for a new executor, which
first fetches jars and starts Java and Python. Fewer tasks, each with more partitions, then serve on the cores that are
left. Pure; times are monotonic seconds.
"""

from dataclasses import dataclass

__all__ = ["LACKING_SECONDS", "SETTLED_SECONDS", "Sizing"]

#: How long tasks may lack a core before fewer tasks share the cores that are left.
LACKING_SECONDS = 1.0
#: How long the number of cores must have changed while every task runs. A restart pauses bars, and an executor that was
#: lost is usually replaced sooner.
SETTLED_SECONDS = 60.0


@dataclass(slots=True)
class Sizing:
    tasks: int
    _lacking_since: float | None = None
    _changed_since: float | None = None

    def must_begin_anew(self, wanted: int, *, all_run: bool, at: float) -> bool:
        """Whether `wanted` tasks should replace the current ones. `wanted`: the number that the present cores allow."""
        is_lacking = wanted < self.tasks and not all_run
        self._lacking_since = (self._lacking_since or at) if is_lacking else None
        self._changed_since = (self._changed_since or at) if wanted != self.tasks else None
        return any(
            since is not None and at - since >= seconds
            for since, seconds in ((self._lacking_since, LACKING_SECONDS), (self._changed_since, SETTLED_SECONDS))
        )
