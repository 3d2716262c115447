"""`lumos report`: one self-contained HTML page of a run."""

from pathlib import Path
from typing import Annotated

from lumos.cli.common import Common, placed
from lumos.cli.common import report as print_report
from lumos.storage import PRIVATE

COMMON = Common()


def report(
    run: Annotated[Path, placed("run")],
    /,
    *,
    out: Annotated[Path | None, placed("out")] = None,
    common: Common = COMMON,
) -> None:
    """Write one HTML page of a finished run: no script, nothing to load, ready to print.

    Parameters
    ----------
    run
        A folder that `lumos train … --out` wrote.
    out
        The file to write; RUN/report.html by default.
    """
    from lumos.runs.load import load_run  # torch takes a second to import: not for a wrong option

    path = load_run(run).report(run / "report.html" if out is None else out)
    if out is None:
        path.chmod(PRIVATE)  # as all files of a run folder
    print_report({"path": str(path)}, common, str(path))
