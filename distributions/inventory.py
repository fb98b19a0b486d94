"""What the distributions depend on, by the lock file: `NOTICE`, and the bill of materials in CycloneDX's format.

python distributions/inventory.py notice      # writes NOTICE; a test compares it with what is installed
python distributions/inventory.py lock        # prints the lock file without development tools, for the image
"""

import json
import re
import sys
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parent.parent
#: An early patch of an interpreter needs a package more, which the image does not have.
_NEWEST_PATCH = f"{sys.version_info.major}.{sys.version_info.minor}.99"
OWN = ("candlewright", "candlewright-cep", "candlewright-platform")
_NOTICE = """\
candlewright
Copyright the candlewright authors. Licensed under the Apache License, Version 2.0 (see LICENSE).

The wheels contain this project's own code. candlewright-platform also contains the browser packages of the console,
whose licenses are in console/web/dist/licences.txt. Its charts are TradingView Lightweight Charts™, under Apache-2.0:
Copyright (c) TradingView, Inc., https://www.tradingview.com/

The wheels depend on the packages below, which a container image made from them carries, each under its own license.
`python distributions/inventory.py notice` makes this list from requirements.lock.

Fetched at the first start, and carried by the image:
  org.apache.iceberg:iceberg-spark-runtime and iceberg-aws-bundle  Apache-2.0
  org.xerial:sqlite-jdbc                                           Apache-2.0

"""


@dataclass(frozen=True, slots=True)
class Package:
    name: str
    version: str
    license: str
    hashes: tuple[str, ...]


def _blocks() -> dict[str, list[str]]:
    """The text of each package in the lock file: one for each version, if that depends on the interpreter."""
    found: dict[str, list[str]] = {}
    for block in re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text()):
        if "==" in block:
            found.setdefault(canonicalize_name(block.partition("==")[0]), []).append(block.strip())
    return found


def _locked(name: str, block: str) -> Package:
    version = str(Requirement(block.partition("\\")[0]).specifier).removeprefix("==")
    return Package(name, version, license_of(name), tuple(re.findall(r"--hash=sha256:([0-9a-f]{64})", block)))


def needed() -> list[str]:
    """Names of the packages that the three distributions need at run time, directly or indirectly; no development
    tools.
    """
    names: set[str] = set()
    waiting = [("candlewright-platform", "")]
    done: set[tuple[str, str]] = set()
    while waiting:
        each = waiting.pop()
        if each in done:
            continue
        done.add(each)
        names.add(each[0])
        waiting += _needs(*each)
    return sorted(names - {*OWN})


def packages() -> list[Package]:
    """The `needed` packages as locked, for the newest interpreter, which the image has."""
    blocks = _blocks()
    return [_locked(name, blocks[name][-1]) for name in needed()]


def lock() -> str:
    """The lock file with only the `needed` packages."""
    blocks = _blocks()
    return "".join(f"{block}\n" for name in needed() for block in blocks[name])


def _needs(name: str, extra: str) -> Iterator[tuple[str, str]]:
    for text in metadata.requires(name) or ():
        asked = Requirement(text)
        if asked.marker is None or asked.marker.evaluate({"extra": extra, "python_full_version": _NEWEST_PATCH}):
            yield from ((canonicalize_name(asked.name), wanted) for wanted in ("", *asked.extras))


def license_of(name: str) -> str:
    """The license in its metadata: an SPDX expression, the trove classifiers, or the first line of a free text."""
    about = metadata.metadata(name)
    if expression := about.get("License-Expression"):
        return expression
    classifiers = [each for each in about.get_all("Classifier", []) if each.startswith("License ::")]
    names = [each.rpartition(" :: ")[2] for each in classifiers if not each.endswith("OSI Approved")]
    return ", ".join(names) or (about.get("License") or "").strip().partition("\n")[0] or "see the package"


def bundled() -> dict[str, dict[str, Any]]:
    """The browser packages in the console's bundle, according to its lock file."""
    lock = json.loads((ROOT / "console" / "web" / "package-lock.json").read_text())["packages"]
    found: dict[str, dict[str, Any]] = {}
    waiting = [name for name in lock[""]["dependencies"] if name != "esbuild"]
    while waiting:
        name = waiting.pop()
        if name not in found:
            found[name] = lock[f"node_modules/{name}"]
            waiting += found[name].get("dependencies", {})
    return dict(sorted(found.items()))


def notice() -> str:
    found = packages()
    width = max(len(f"{each.name} {each.version}") for each in found)
    return _NOTICE + "".join(f"{f'{each.name} {each.version}':<{width}}  {each.license}\n" for each in found)


def bill_of_materials(version: str) -> dict[str, Any]:
    """CycloneDX 1.6. No time and no serial number: equal inputs give equal bytes."""
    own = [
        {
            "type": "application",
            "bom-ref": f"pkg:pypi/{name}@{version}",
            "name": name,
            "version": version,
            "purl": f"pkg:pypi/{name}@{version}",
            "licenses": [{"license": {"id": "Apache-2.0"}}],
        }
        for name in OWN
    ]
    others = [
        {
            "type": "library",
            "bom-ref": f"pkg:pypi/{each.name}@{each.version}",
            "name": each.name,
            "version": each.version,
            "purl": f"pkg:pypi/{each.name}@{each.version}",
            "licenses": [{"license": {"name": each.license}}],
            # One for each file that the lock file allows.
            "externalReferences": [
                {
                    "type": "distribution",
                    "url": f"https://pypi.org/project/{each.name}/{each.version}/",
                    "hashes": [{"alg": "SHA-256", "content": digest} for digest in each.hashes],
                }
            ],
        }
        for each in packages()
    ]
    others += [
        {
            "type": "library",
            "bom-ref": f"pkg:npm/{name.replace('@', '%40')}@{each['version']}",
            "name": name,
            "version": each["version"],
            "purl": f"pkg:npm/{name.replace('@', '%40')}@{each['version']}",
            "licenses": [{"license": {"name": each.get("license", "see the package")}}],
            "hashes": [{"alg": "SHA-512", "content": b64decode(each["integrity"].removeprefix("sha512-")).hex()}],
        }
        for name, each in bundled().items()
    ]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": own[-1]},
        "components": [*own[:-1], *others],
    }


def write_bill_of_materials(folder: Path, version: str) -> Path:
    file = folder / f"candlewright-{version}.cdx.json"
    file.write_text(json.dumps(bill_of_materials(version), indent=2) + "\n")
    return file


if __name__ == "__main__":
    match sys.argv[1:]:
        case ["notice"]:
            (ROOT / "NOTICE").write_text(notice())
        case ["lock"]:
            print(lock(), end="")
        case _:
            sys.exit("usage: python distributions/inventory.py notice|lock")
