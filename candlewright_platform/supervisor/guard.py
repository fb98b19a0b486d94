"""Run a command that must not outlive its parent: `python guard.py PARENT_PID COMMAND …`.

Started as a plain script, without site packages, and replaced by the command at once. The kernel's parent-death signal
survives the replacement, so nothing is left behind even when the parent is killed.
"""

import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1


def main() -> None:
    parent, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent:
            sys.exit(1)
    os.execvp(command[0], command)


if __name__ == "__main__":
    main()
