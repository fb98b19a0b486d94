"""`python -m tests.faults.hanging`: the part named in `HANGING_PART`, whose main thread hangs from SIGUSR1 on.

The other threads run on.
"""

import os
import runpy
import signal
import threading

if __name__ == "__main__":
    signal.signal(signal.SIGUSR1, lambda *_: threading.Event().wait())
    runpy.run_module(os.environ["HANGING_PART"], run_name="__main__")
