"""The examples of the README run."""

import re

from tests.conftest import ROOT

_README = ROOT / "candlewright_cep" / "README.md"


def test_the_examples_of_the_readme_pass_their_assertions() -> None:
    section = _README.read_text().partition("## Row patterns for any PySpark")[2].partition("\n## ")[0]
    blocks = re.findall(r"```python\n(.*?)```", section, re.DOTALL)
    assert len(blocks) == 3
    names: dict[str, object] = {}
    for block in blocks:
        exec(block, names)
    assert callable(names["on_a_stream"])
