"""A recipe: one file of docs/cookbook, read by the tests, by the maker of figures and by the index.

Above the title the file says on which recording it runs, and what its idea expects of the price afterwards. Its SQL
has a column `at`, the time of the row that decides a match; `since`, the first row of the shape, and `level`, a price,
are drawn if it has them. The part between the two marks is made, and nothing else of the file is.
"""

import re
from dataclasses import dataclass
from pathlib import Path

from documentation import trigger_text
from documentation.source import ROOT

FOLDER = ROOT / "docs" / "cookbook"
BEGIN = "<!-- Made by `python -m documentation.cookbook --data DIR`, up to the next mark. -->\n"
END = "<!-- End of what is made. -->\n"
_WHOLE = re.compile(
    r"---\n(?P<head>.*?)---\n# (?P<title>[^\n]+)\n\n(?P<idea>.*?)\n\n```sql\n(?P<sql>.*?)```\n", re.DOTALL
)


@dataclass(kw_only=True, frozen=True, slots=True)
class Recipe:
    """`expects`: `up`, `down` or `either`. On the recording: `settings`, the parameters that differ; `drawn`, which
    match (from 1); `beside`, a second ticker to draw. `reads`: the recipes whose events it reads."""

    path: Path
    title: str
    idea: str
    text: trigger_text.Text
    group: str
    recording: str
    expects: str
    settings: dict[str, str]
    drawn: int | None
    beside: str | None
    reads: tuple[str, ...]

    @property
    def name(self) -> str:
        return self.path.stem

    @property
    def input(self) -> str:
        return "trigger_events" if self.reads else self.text.input

    @property
    def image(self) -> Path:
        return self.path.parent / "images" / f"{self.name}.svg"

    @property
    def made(self) -> str:
        """The part between the marks, as the file has it."""
        return self.path.read_text().partition(BEGIN)[2].partition(END)[0]

    def write(self, made: str) -> None:
        front, _, rest = self.path.read_text().partition(BEGIN)
        self.path.write_text(f"{front}{BEGIN}{made}{END}{rest.partition(END)[2]}")


def read(path: Path) -> Recipe:
    whole = _WHOLE.match(path.read_text())
    assert whole is not None, f"{path.name}: expected a head, a title, an idea and a block of SQL"
    head = dict(line.split(": ", 1) for line in whole["head"].splitlines())
    settings = dict(item.split("=") for item in head.get("settings", "").split(", ") if item)
    return Recipe(
        path=path,
        title=whole["title"],
        idea=whole["idea"],
        text=trigger_text.read(whole["sql"]),
        group=head["group"],
        recording=head["recording"],
        expects=head["expects"],
        settings=settings,
        drawn=int(head["drawn"]) if "drawn" in head else None,
        beside=head.get("beside"),
        reads=tuple(head["reads"].split(", ")) if "reads" in head else (),
    )


def all_recipes() -> dict[str, Recipe]:
    """By name, in the order of the names."""
    return {path.stem: read(path) for path in sorted(FOLDER.glob("*.md")) if path.stem != "index"}
