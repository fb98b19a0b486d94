import re
from importlib import resources
from urllib.parse import urlsplit

import pytest
import redis

from bus.api import Record
from bus.connect import check_access, connect
from bus.redis.permissions import CALLS
from candlewright.wire.errors import BusLimit, ConfigurationError
from core.settings import BusSettings

_FOLDER = resources.files("bus.redis")
#: What sends commands; `permissions.py` lists them.
_MODULES = [module for module in _FOLDER.iterdir() if module.name.endswith(".py") and module.name != "permissions.py"]

#: Of the user in compose.yaml.
RULES = ("+@all", "-@admin", "-@dangerous", "+info")


def test_settings_reach_the_bus(redis_url: str) -> None:
    bus = connect(BusSettings(url=redis_url, partitions=7))
    assert bus.create_topic("t") == 7
    bus.close()


def test_limits_of_settings_are_those_that_the_bus_keeps(redis_url: str) -> None:
    bus = connect(
        BusSettings(url=redis_url, partitions=1, max_topics=100, max_groups=2, max_names=1_000, max_rows=1_000)
    )
    for number in range(100):
        bus.create_topic(f"t{number}")
    with pytest.raises(BusLimit, match="the bus has 100 topics; the maximum is 100"):
        bus.create_topic("more")
    bus.create_group("t0", "a", at_end=False)
    bus.create_group("t0", "b", at_end=False)
    with pytest.raises(BusLimit, match="the bus has 2 groups of topic t0; the maximum is 2"):
        bus.create_group("t0", "c", at_end=False)
    bus.put("rows", {f"r{number}": b"" for number in range(1_200)}, keep_seconds=60)
    assert len(bus.items("rows")) == 1_000
    names = [f"n{number}" for number in range(1_200)]
    bus.publish_new("t0", [Record(b"")] * 1_200, registry="ids", names=names, keep_seconds=60)
    assert sum(content is not None for content in bus.recall("ids", names)) == 1_000
    bus.close()


@pytest.mark.parametrize("url", ["", "127.0.0.1:6379", "http://localhost"])
def test_a_missing_or_foreign_url_is_a_configuration_error(url: str) -> None:
    with pytest.raises(ConfigurationError):
        connect(BusSettings(url=url))


def test_access_is_checked_with_the_first_words_of_a_part(redis_url: str) -> None:
    """A relay with a wrong password used to end with a traceback, and an ingestor continued."""
    for user, reason in (
        (":wrong@", "invalid username-password pair"),
        ("stranger:p@", "invalid username-password pair"),
        ("", "Authentication required"),
        (as_user(redis_url, "+ping"), "this user has no permissions to run the 'info' command"),
    ):
        with pytest.raises(ConfigurationError, match=rf"^bus\.url: Redis refuses its user or password: .*{reason}"):
            check_access(settings_of(redis_url, user))
    check_access(BusSettings(url=redis_url))


def as_user(redis_url: str, *rules: str, keys: str = "cw:*") -> str:
    """A user with these rules, as the beginning of an address."""
    with redis.Redis.from_url(redis_url) as admin:
        admin.acl_setuser("guest", enabled=True, reset=True, passwords=["+p"], keys=[keys], commands=list(rules))
    return "guest:p@"


def settings_of(redis_url: str, user: str) -> BusSettings:
    return BusSettings(url=f"redis://{user}127.0.0.1:{urlsplit(redis_url).port}/0")


def sent_commands() -> set[str]:
    """The commands in the bus's scripts and calls."""
    found = set[str]()
    for script in _FOLDER.joinpath("lua").iterdir():
        found.update(re.findall(r"\bp?call\('([A-Z]+)'", script.read_text()))
    for module in _MODULES:
        text = module.read_text()
        found.update(re.findall(r'(?:call|pack)\(\(?"([A-Z]+)"', text))
        found.update(re.findall(r'[\[(= ]\("([A-Z]+)", ', text))
    # A part of XCLAIM, what begins every connection, and what ends a transaction: the check begins one, which needs the
    # same category of commands.
    return found - {"RETRYCOUNT", "MULTI", "EXEC", "AUTH", "SELECT"}


def test_every_command_and_key_of_the_bus_is_among_those_that_access_is_checked_for() -> None:
    checked = {call[0] for call in CALLS}
    assert {"EVAL", "EVALSHA", "XREAD", "LPOP", "XADD", "ZREMRANGEBYSCORE"} <= checked
    assert sent_commands() <= checked
    sources = [*_FOLDER.joinpath("lua").iterdir(), *_MODULES]
    families = {name for each in sources for name in re.findall(r"['\"]cw:([a-z]+)", each.read_text())}
    assert len(families) > 20
    assert families <= {call[1].split(":")[1] for call in CALLS if call[0] == "SET"}


@pytest.mark.parametrize("command", sorted({call[0] for call in CALLS} - {"PING"}))
def test_a_user_that_lacks_one_command_is_refused_by_its_name(redis_url: str, command: str) -> None:
    """A user without EVALSHA used to pass the check, and each part then failed in its own way."""
    user = as_user(redis_url, *RULES, f"-{command.lower()}")
    with pytest.raises(ConfigurationError, match=rf"^bus\.url: Redis .*\b{command}\b|'{command.lower()}'"):
        check_access(settings_of(redis_url, user))


def test_a_user_that_may_reach_only_some_of_the_keys_is_refused(redis_url: str) -> None:
    reason = "the key cw:probe, the key cw:budget:probe, .* and [0-9]+ more; these rules suffice: ~cw:"
    with pytest.raises(ConfigurationError, match=rf"^bus\.url: Redis does not permit its user {reason}"):
        check_access(settings_of(redis_url, as_user(redis_url, *RULES, keys="cw:l*")))


def test_the_check_of_a_users_rights_changes_nothing(redis_url: str) -> None:
    with redis.Redis.from_url(redis_url) as admin:
        check_access(settings_of(redis_url, as_user(redis_url, *RULES)))
        assert [key for key in admin.scan_iter() if key != b"cw:life"] == []


def test_a_server_that_is_down_does_not_refuse_anyone() -> None:
    check_access(BusSettings(url="redis://:p@127.0.0.1:1/0"))
