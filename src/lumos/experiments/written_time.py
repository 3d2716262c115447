"""Seconds as people write them."""


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
