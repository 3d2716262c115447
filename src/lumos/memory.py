"""How much memory this process has used."""

import resource
import sys


def peak_rss_mb() -> float:
    """The largest resident memory of this process so far, in megabytes."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return round(peak / (1024 if sys.platform != "darwin" else 1024**2), 1)
