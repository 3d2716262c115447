"""`lumos audit`: attack a graph or a run, and set what was found beside what is claimed."""

import textwrap
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from rich.console import Console
from rich.markup import escape

from lumos.cli.common import Common, console, print_json, progress_bar
from lumos.cli.options import given
from lumos.cli.train import NOTHING, REFUSE, Options
from lumos.errors import PromiseExceeded, UsageError
from lumos.graph import ReadOptions, load
from lumos.storage import write_json

if TYPE_CHECKING:
    from lumos.audit import AuditReport, AuditRow
SHARED = Common()


def audit(
    target: str,
    /,
    *,
    attack: Annotated[list[str] | None, Parameter(negative="")] = None,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[ReadOptions, Parameter(name="*")] = REFUSE,
    out: Path | None = None,
    common: Common = SHARED,
) -> None:
    """Attack a federation by the recorded messages of a real run; compare with what is claimed.

    Both tasks are audited unless --task names one. Exit status 1 where an attack exceeds a bound
    that Lumos claims.

    Parameters
    ----------
    target
        demo, facebook, …, a path of a graph, or a folder that `lumos train … --out` wrote.
    attack
        Only this attack, as symbol; may be given several times. By default all that apply, to
        both tasks unless --task names one. An unknown name lists all.
    out
        A JSON file to write. For a run folder, RUN/audit.json by default.
    """
    settings = given(options)
    from lumos.audit import FILE, run_audit  # torch takes a second to import

    attacks = attack or []
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UsageError(f"`out`: {out} must be a file in a folder that exists")
    with progress_bar("auditing") as bar:
        if (Path(target) / "run.json").exists():
            from lumos.runs.load import load_run

            if settings:
                raise UsageError("a run is audited under its own settings; leave options out")
            out = Path(target) / FILE if out is None else out
            report = run_audit(
                load_run(target), attacks=attacks, data_dir=common.data_dir, progress=bar
            )
        else:
            graph = load(target, data_dir=common.data_dir, **vars(reading))
            report = run_audit(graph, attacks=attacks, seed=common.seed, progress=bar, **settings)
    if out is not None:
        write_json(out, report.to_json(), private=True)
    if common.json:
        print_json(report.to_json())
    else:
        show(report, out)
    if report.exceeded:
        names = ", ".join(sorted({row.attack for row in report.exceeded}))
        many = len(report.exceeded)
        raise PromiseExceeded(f"{many} of {len(report.rows)} rows exceed their bound ({names})")


def show(report: "AuditReport", out: Path | None) -> None:
    """The table for people: one block for each adversary."""
    screen = console()
    settings = ", ".join(f"{name}={value}" for name, value in report.settings.items())
    screen.print(
        f"{escape(report.graph)}: {report.devices:,} devices · profile {report.profile}"
        + f" · {escape(settings)}" * bool(settings)
        + f" · seed {report.seed}"
    )
    screen.print(
        "Attackers see what the protocol gives them in a recorded run. Figures are what these "
        "attacks found; others may find more."
    )
    for adversary, rows in report.by_adversary().items():
        screen.print(f"\n[bold]{escape(adversary)}[/bold]")
        for row in rows:
            _print(screen, row.about, 2)
            _print(screen, _figures(report, row), 4)
    screen.print()
    claimed = [row for row in report.rows if row.bound is not None]
    if not report.rows:
        screen.print("These attacks have nothing to attack under these settings: no rows.")
    screen.print(
        f"{len(claimed)} of {len(report.rows)} rows have a bound; {len(report.exceeded)} exceed it "
        "(99.9 % confidence for all rows together). "
        f"{sum(report.seconds.values()):.0f} s."
    )
    for note in report.notes():
        _print(screen, note, 0)
    for row in report.exceeded:
        screen.print(f"EXCEEDED: {row.attack}, {row.adversary}, {escape(row.about)}")
    if out is not None:
        screen.print(f"audit: {out}")


def _figures(report: "AuditReport", row: "AuditRow") -> str:
    """What was found, without and with the messages, what is claimed, and the verdict."""
    found, without, claimed = report.figures(row)
    parts = [found]
    if row.chance is not None:
        parts.append(f"without {without} ({row.chance_is}): {report.advantage(row)}")
    if row.bound is not None:
        parts.append(f"claimed {claimed} ({row.bound_is})")
    return " · ".join([*parts, report.verdict(row)])


def _print(screen: Console, text: str, indent: int) -> None:
    """A paragraph, indented; no markup in it."""
    space = " " * indent
    width = min(screen.width, 120)
    lines = textwrap.wrap(text, width, initial_indent=space, subsequent_indent=space + "  ")
    screen.print("\n".join(lines), markup=False)
