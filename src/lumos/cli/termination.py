"""Commands that others ask to end: they put away what they made before they do."""

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType
from typing import NoReturn

_ASKS = (signal.SIGTERM, signal.SIGHUP)
"""From `kill`, a service manager, or a terminal that is closed."""


@contextmanager
def ended_in_order() -> Iterator[None]:
    """Inside, a signal that asks the process to end raises `SystemExit`, once.

    The exit status is 128 and the number of the signal, as shells have it. A signal that whoever
    started the process wants ignored, as `nohup` does, stays ignored.
    """
    if threading.current_thread() is not threading.main_thread():
        yield  # only the main thread hears of signals
        return
    heard = [number for number in _ASKS if signal.getsignal(number) is signal.SIG_DFL]

    def end(number: int, _frame: FrameType | None) -> NoReturn:
        for one in heard:
            signal.signal(one, signal.SIG_IGN)  # a second one would interrupt the tidying
        raise SystemExit(128 + number)

    for number in heard:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number in heard:
            signal.signal(number, signal.SIG_DFL)
