"""`lumos report`: one self-contained HTML page of a run."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lumos.cli.common import print_json


def report(
    run: Path,
    /,
    *,
    out: Path | None = None,
    json: Annotated[bool, Parameter(negative="")] = False,
) -> None:
    """Write one HTML page of a finished run: no script, nothing to load, ready to print.

    Parameters
    ----------
    run
        A folder that `lumos train … --out` wrote.
    out
        The file to write; RUN/report.html by default.
    json
        Print one JSON object on standard output, and nothing else there.
    """
    from lumos.report.run import page_of  # torch takes a second to import: not for a wrong option

    path = page_of(run).write(run / "report.html" if out is None else out)
    if json:
        print_json({"path": str(path)})
    else:
        print(path)
