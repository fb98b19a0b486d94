"""How a benchmark prints its result: one line of JSON, or a table to read."""

import argparse
import json
from collections.abc import Mapping


def add_output(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", choices=("json", "table"), default="table")


def show(result: Mapping[str, object], output: str) -> None:
    if output == "json":
        print(json.dumps(result))
        return
    for name, value in result.items():
        print(f"{name:<32}{value}")
