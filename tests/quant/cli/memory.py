"""How much memory a command takes at its peak."""

import subprocess
import sys

# A process starts with the peak of the one it was forked from, so a small one has to start it: an
# interpreter with nothing imported takes about 10 MB.
STARTER = """
import os, sys
pid = os.posix_spawn(sys.argv[1], sys.argv[1:], os.environ)
_, status, usage = os.wait4(pid, 0)
print(usage.ru_maxrss)
sys.exit(os.waitstatus_to_exitcode(status))
"""


def peak_bytes(command):
    """Runs `command`, a list whose first item is a path, and returns its peak resident memory,
    mapped files included. It must succeed."""
    starter = [sys.executable, "-I", "-S", "-c", STARTER]
    result = subprocess.run([*starter, *map(str, command)], capture_output=True, text=True)
    if result.returncode != 0:
        raise AssertionError(f"{command}: status {result.returncode}: {result.stderr}")
    return 1024 * int(result.stdout.splitlines()[-1])
