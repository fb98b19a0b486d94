"""Authentication: keys of clients and ingestors, and tokens for HTTP."""

from core.doors.doorkeeper import Doorkeeper
from core.doors.keys import Entry, KeyFolder, KnownKeys, Pair, Role
from core.doors.tokens import Holder, KnownTokens

__all__ = ["Doorkeeper", "Entry", "Holder", "KeyFolder", "KnownKeys", "KnownTokens", "Pair", "Role"]
