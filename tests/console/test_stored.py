"""Loading what reads the tables."""

import subprocess
import sys

import pytest

#: Loads the tables in two threads: one is inside the package's own imports while the other asks for one of its modules.
_SCRIPT = """
import importlib, sys, threading
from importlib.abc import MetaPathFinder
from pathlib import Path
from console.stored import Tables
from core.settings import Settings

inside, loaded, errors = threading.Event(), threading.Event(), []

class Slow(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name == "iceberg.append":
            inside.set()
            loaded.wait(0.5)

def load(module):
    try:
        if module == "iceberg.views":
            inside.wait()
        Tables(Settings(data_dir=Path(sys.argv[1])))._guarded(lambda _: importlib.import_module(module))
    except Exception as error:
        errors.append(error)
    if module == "iceberg.views":
        loaded.set()

sys.meta_path.insert(0, Slow())
threads = [threading.Thread(target=load, args=[name]) for name in ("iceberg.read", "iceberg.views")]
for each in threads:
    each.start()
for each in threads:
    each.join()
sys.exit(repr(errors) if errors else 0)
"""


@pytest.mark.processes
def test_threads_that_load_the_tables_together_both_get_them(tmp_path: object) -> None:
    done = subprocess.run([sys.executable, "-c", _SCRIPT, str(tmp_path)], capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
