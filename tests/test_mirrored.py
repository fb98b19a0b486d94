"""Tests mirror the rooms: the tests of `X/Y.py` are in `tests/X/test_Y.py`.

A test of what several modules do together is in the folder that contains them all, and not named after a module.
"""

from collections import defaultdict

from tests.conftest import PACKAGES, ROOT

#: Tests of the whole platform, and of what is not a package of it.
WHOLE = {"cluster", "distributions", "documentation", "faults", "system"}
#: Fixtures and helpers that tests share.
MAKERS = {"clients"}

TESTS = sorted((ROOT / "tests").glob("*/**/test_*.py"))


def misplaced(tests: dict[str, list[str]], modules: dict[str, list[str]]) -> list[str]:
    """The tests that are named like a module of their package, in a room where it is not; both: folders by name."""
    return [
        f"tests/{room}/test_{name}.py: the module is in {', '.join(modules[name])}"
        for name, rooms in sorted(tests.items())
        for room in rooms
        if modules.get(name) and room not in modules[name]
    ]


def test_each_folder_of_tests_is_that_of_a_room() -> None:
    rooms = {path.parent.relative_to(ROOT / "tests") for path in TESTS}
    rooms = {room for room in rooms if room.parts[0] not in WHOLE | MAKERS}
    assert len(rooms) > 50
    assert [str(room) for room in sorted(rooms) if not (ROOT / room).is_dir()] == []


def test_the_tests_of_a_module_are_in_its_room() -> None:
    wrong, seen = [], 0
    for package in (ROOT / name for name in PACKAGES if name not in WHOLE):
        modules, tests = defaultdict(list), defaultdict(list)
        for path in sorted(package.rglob("*.py")):
            modules[path.stem].append(str(path.parent.relative_to(ROOT)))
        for path in sorted((ROOT / "tests" / package.name).rglob("test_*.py")):
            tests[path.stem.removeprefix("test_")].append(str(path.parent.relative_to(ROOT / "tests")))
            seen += 1
        wrong += misplaced(tests, modules)
    assert seen > 300
    assert wrong == []


def test_a_test_in_another_room_is_found() -> None:
    modules = {"grid": ["candlewright/wire"]}
    assert misplaced({"grid": ["candlewright/wire"], "walks": ["candlewright"]}, modules) == []
    assert misplaced({"grid": ["candlewright"]}, modules) == [
        "tests/candlewright/test_grid.py: the module is in candlewright/wire"
    ]
