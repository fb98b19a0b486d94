"""Which environment variables are settings, and the errors for those that only look like one."""

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import TypeGuard, get_args

from pydantic import BaseModel

NESTED = "__"
#: Variables of the platform that are not settings: the settings file's path, and what the supervisor passes to parts.
_OWN = frozenset({"CONFIG", "HTTP_PORT_FILE", "SUPERVISED"})
#: Groups of other programs: the sandbox exchange.
_ELSEWHERE = frozenset({"SANDBOX"})
#: Similarity of two names, from 0 to 1, at which one counts as a typo of the other.
_ALIKE = 0.8


def names_of(model: type[BaseModel], above: str = "") -> Iterator[str]:
    """Names of all settings without the prefix, and of their groups: `BROKER`, `BROKER__BIND`, …"""
    for name, field in model.model_fields.items():
        yield above + name.upper()
        if isinstance(field.annotation, type) and issubclass(field.annotation, BaseModel):
            yield from names_of(field.annotation, above + name.upper() + NESTED)


def problems(variables: Iterable[str], prefix: str, model: type[BaseModel]) -> tuple[list[str], list[str]]:
    """(errors, warnings), a sentence each, about variables that begin with `prefix` and set nothing.

    Names in a known group are left to the model itself. A name is an error if it must be meant as a setting: it has the
    form of a nested one, or is similar to one. Any other name may belong to another program.
    """
    known = list(names_of(model))
    groups = {name for name in known if NESTED not in name}
    errors: list[str] = []
    warnings: list[str] = []
    for variable in sorted(variables):
        name = variable.upper()
        if not name.startswith(prefix):
            continue
        name = name.removeprefix(prefix)
        group, _, rest = name.partition(NESTED)
        if name in _OWN or group in _ELSEWHERE or group in groups:
            continue
        nearest = _nearest(name, group, rest, known)
        if nearest:
            errors.append(f"{variable}: no such setting; did you mean {prefix}{nearest}?")
        elif rest:
            errors.append(f"{variable}: no such setting, and none with a similar name")
        else:
            warnings.append(f"the environment variable {variable} is not a setting and has no effect")
    return errors, warnings


def nearest_setting(dotted: str, model: type[BaseModel]) -> str:
    """The setting that `broker.bindd` must mean (`broker.bind`); empty if none is similar."""
    name = dotted.upper().replace(".", NESTED)
    group, _, rest = name.partition(NESTED)
    found = _nearest(name, group, rest, list(names_of(model)))
    return found.lower().replace(NESTED, ".") if found not in ("", name) else _in_its_group(dotted, model)


def _in_its_group(dotted: str, model: type[BaseModel]) -> str:
    """As `nearest_setting`, within a group that the user has named, such as `alerts.phone`."""
    *path, name = dotted.split(".")
    group: object = model
    for each in path:
        group = _inside(group, each)
    known = list(group.model_fields) if _is_model(group) else []
    return ".".join([*path, *near]) if (near := get_close_matches(name, known, n=1, cutoff=_ALIKE)) else ""


def _inside(group: object, name: str) -> object:
    if _is_model(group):
        if (field := group.model_fields.get(name)) is not None:
            return field.annotation
        group = group.__annotations__.get("__pydantic_extra__")
    return next((each for each in get_args(group) if _is_model(each)), None)


def _is_model(found: object) -> TypeGuard[type[BaseModel]]:
    return isinstance(found, type) and issubclass(found, BaseModel)


def _nearest(name: str, group: str, rest: str, known: list[str]) -> str:
    """Empty if none is similar. In a map the key is chosen by the user: only its group can be mistyped."""
    for found in get_close_matches(name, known, n=1, cutoff=_ALIKE):
        return found
    for found in get_close_matches(group, [each for each in known if NESTED not in each], n=1, cutoff=_ALIKE):
        return found + (NESTED + rest if rest else "")
    return ""
