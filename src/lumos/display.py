"""Display of results: in notebooks as HTML, and as pandas frames.

Results are made far below the package that draws; each of them has a line of its own:

    def _repr_html_(self) -> str:
        return DISPLAYS["run"](self)
"""

import html
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lumos.registry import Registry
from lumos.typing import Progress

if TYPE_CHECKING:
    import pandas

DISPLAYS: Registry[Any] = Registry(
    "display",
    {
        "run": "lumos.report.display:show_run",
        "audit": "lumos.report.display:show_audit",
    },
)
"""By kind of result: a function `(result) -> HTML` of a fragment that is complete in itself."""


def frame(columns: Mapping[str, Any]) -> "pandas.DataFrame":
    """Return a frame from columns (sequences or arrays of one length), in their order."""
    import pandas  # takes a third of a second: not for every import of lumos

    return pandas.DataFrame(dict(columns))


def frame_of_rows(rows: Sequence[Mapping[str, Any]], columns: Sequence[str]) -> "pandas.DataFrame":
    """Return a frame from rows; a cell is None where a row has none of that name."""
    return frame({name: [row.get(name) for row in rows] for name in columns})


# Progress for people: a bar in a terminal or a notebook, a line now and then elsewhere.
#
# `displayed(True, "training")` chooses by where the output goes; a callback of the caller's own
# takes its place, and None or False shows nothing.

ProgressOption = bool | Progress | None
"""True: show progress where people look; a callback `(done, total, note)`: call it periodically;
None or False: neither."""

SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_UPDATES = 0.25


@contextmanager
def displayed(progress: ProgressOption, what: str) -> Iterator[Progress | None]:
    """The callback to call: the caller's own, one that shows progress, or None.

    Args:
        progress: as `lumos.train` takes it.
        what: one word for what is done, as `training`.
    """
    if not isinstance(progress, bool):
        yield progress
    elif not progress:
        yield None
    elif _in_notebook():
        bar = NotebookBar(what)
        yield bar
        bar.close()
    elif sys.stderr.isatty():
        with _terminal_bar(what) as shown:
            yield shown
    else:
        yield ProgressLines(what)


class Pace:
    """Estimate of the remaining time of a phase; another total, or fewer done, begins another
    one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._total: float | None = None
        self._first = self._done = 0.0
        self._began = clock()

    def left(self, done: float, total: float | None) -> float | None:
        """Seconds left after `done` of `total`; None where that is not known yet."""
        now = self._clock()
        if total != self._total or done < self._done:
            self._total, self._first, self._began = total, done, now
        self._done = done
        if total is None or done <= self._first:
            return None
        return (now - self._began) * max(total - done, 0) / (done - self._first)


class ProgressLines:
    """A callback that writes a line at most every ten seconds, so nothing for a short job.

    Args:
        what: one word for what is done.
        write: takes a line; standard error by default.
        clock: seconds that only grow.
    """

    def __init__(
        self,
        what: str,
        write: Callable[[str], None] | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._what = what
        self._write = write or _to_standard_error
        self._clock = clock
        self._pace = Pace(clock)
        self._last = clock()

    def __call__(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report that `done` of `total` is finished."""
        left = self._pace.left(done, total)
        now = self._clock()
        if now - self._last >= SECONDS_BETWEEN_LINES:
            self._last = now
            self._write(line_of(self._what, done, total, note, left))


class NotebookBar:
    """A callback that keeps one output of a notebook up to date; it needs no widgets."""

    def __init__(self, what: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._what = what
        self._clock = clock
        self._pace = Pace(clock)
        self._last = clock()
        self._now: tuple[float, float | None, str, float | None] = (0, None, "", None)
        self._handle: Any = None

    def __call__(self, done: float, total: float | None = None, note: str = "") -> None:
        """Report that `done` of `total` is finished."""
        self._now = done, total, note, self._pace.left(done, total)
        now = self._clock()
        if self._handle is None:
            show = sys.modules["IPython"].display.display
            self._handle = show(self._content(), raw=True, display_id=True)
        elif now - self._last >= _SECONDS_BETWEEN_UPDATES:
            self._last = now
            self._handle.update(self._content(), raw=True)

    def close(self) -> None:
        """Show the last state, if there was any."""
        if self._handle is not None:
            self._handle.update(self._content(), raw=True)

    def _content(self) -> dict[str, str]:
        done, total, *_ = self._now
        text = line_of(self._what, *self._now)
        bar = "" if total is None else f'<progress value="{done:g}" max="{total:g}"></progress> '
        return {"text/plain": text, "text/html": f"{bar}<code>{html.escape(text)}</code>"}


def line_of(
    what: str, done: float, total: float | None, note: str, left: float | None = None
) -> str:
    """`training: 120 of 361 · run epoch 120 · about 40 s left`."""
    of = "" if total is None else f" of {total:,.0f}"
    parts = [f"{what}: {done:,.0f}{of}", note]
    if left is not None and left >= 1:
        parts.append(f"about {duration(left)} left")
    return " · ".join(part for part in parts if part)


def duration(seconds: float) -> str:
    """Seconds up to two minutes, then minutes, then hours."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


@contextmanager
def _terminal_bar(what: str) -> Iterator[Progress]:
    from rich.console import Console
    from rich.progress import BarColumn, TextColumn, TimeElapsedColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=None),
        TextColumn("{task.fields[note]}", markup=False),
        TimeElapsedColumn(),
        TimeRemainingColumn(),
    )
    screen = Console(stderr=True, markup=False, emoji=False)
    with Bars(*columns, console=screen, transient=True) as bars:
        task = bars.add_task(what, total=None, note="")

        def show(done: float, total: float | None = None, note: str = "") -> None:
            bars.update(task, completed=done, total=total, note=note)

        yield show


def _in_notebook() -> bool:
    """Return True if a Jupyter kernel runs this code; IPython in a terminal is a terminal."""
    module: Any = sys.modules.get("IPython")
    shell = None if module is None else module.get_ipython()
    return shell is not None and getattr(shell, "kernel", None) is not None


def _to_standard_error(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
