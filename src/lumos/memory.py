"""How much memory and processor time this process has used."""

import re
import resource
import sys
from pathlib import Path

_STATUS = Path("/proc/self/status")


def peak_rss_mb() -> float:
    """The largest resident memory of this process so far, in megabytes.

    On Linux `getrusage` also counts the process that started this one, up to the moment when it
    did; the kernel's status of the process itself does not.
    """
    if sys.platform == "linux" and _STATUS.exists():
        found = re.search(r"^VmHWM:\s+(\d+) kB$", _STATUS.read_text(), re.MULTILINE)
        if found:
            return round(int(found[1]) / 1024, 1)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform != "darwin" else 1024**2), 1)


def cpu_seconds() -> float:
    """Processor time of this process so far, and of its workers that have ended, in seconds."""
    spent = (resource.getrusage(of) for of in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in spent)
