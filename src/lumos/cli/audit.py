"""`lumos audit`: attack a graph or a run, and set what was found beside what is claimed."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table
from rich.text import Text

from lumos.cli.common import Common, console, placed, print_json
from lumos.cli.options import AS_IT_IS, Reading, given
from lumos.cli.screen import paragraph
from lumos.cli.train import run_options
from lumos.errors import GuaranteeExceeded, UsageError
from lumos.graph import load
from lumos.storage import write_json
from lumos.training.config import TRAIN_OPTIONS

if TYPE_CHECKING:
    from lumos.audit import AuditReport

    Options = Any
else:
    _UNUSED = ("control", "floor", "checkpoint_every")  # variants beside a run; no attack uses them
    Options = run_options("AuditOptions", {*TRAIN_OPTIONS}.difference(_UNUSED), task="both")

SHARED, NOTHING = Common(), Options()


def audit(
    target: Annotated[str | None, placed("target")] = None,
    /,
    *,
    deployment: Annotated[bool, placed("deployment", negative="")] = False,
    attack: Annotated[list[str] | None, placed("attack", negative="")] = None,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    out: Annotated[Path | None, placed("out")] = None,
    common: Common = SHARED,
) -> None:
    """Attack a federation by the recorded messages of a real run; compare with what is claimed.

    Both tasks are audited unless --task names one. Exit status 1 where an attack exceeds a bound
    that Lumos claims.

    Parameters
    ----------
    target
        demo, facebook, …, a path of a graph, or a folder that `lumos train … --out` wrote. With
        --deployment, a graph of at most 200 devices; demo:20 by default.
    deployment
        Attack a federation of real devices, in virtual time: files, timing, barriers, restarts,
        plans, floods.
    attack
        Only this attack, as broker; may be repeated. By default all that apply, to both tasks
        unless --task names one. An unknown name lists all.
    out
        A JSON file to write. For a run folder, RUN/audit.json by default.
    """
    settings = given(options)
    if out is not None and (out.is_dir() or not out.absolute().parent.is_dir()):
        raise UsageError(f"`out`: {out} must be a file in a folder that exists")
    if target is None and not deployment:
        raise UsageError("name a graph or a run, or use `deployment`")
    from lumos.audit import FILE, run_audit  # torch takes a second to import

    attacks = attack or []
    if deployment:
        if settings:
            raise UsageError(
                f"`{next(iter(settings))}` has no effect with `deployment`, which has settings of "
                "its own; leave it out"
            )
        from lumos.deploy.attacks import DEFAULT_GRAPH, audit_deployment

        graph = load(target or DEFAULT_GRAPH, data_dir=common.data_dir, **given(reading))
        report = audit_deployment(graph, attacks=attacks, seed=common.seed, progress=True)
    elif (Path(str(target)) / "run.json").exists():
        from lumos.runs.load import load_run

        if settings or given(reading):
            raise UsageError("a run is audited under its own settings; leave options out")
        common.refuse_seed("a run is audited under its own seed")
        out = Path(str(target)) / FILE if out is None else out
        report = run_audit(
            load_run(str(target)), attacks=attacks, data_dir=common.data_dir, progress=True
        )
    else:
        graph = load(str(target), data_dir=common.data_dir, **given(reading))
        report = run_audit(graph, attacks=attacks, seed=common.seed, progress=True, **settings)
    if out is not None:
        write_json(out, report.to_json(), private=True)
    if common.json:
        print_json(report.to_json())
    else:
        show(report, out)
    if report.exceeded:
        names = ", ".join(sorted({row.attack for row in report.exceeded}))
        many = len(report.exceeded)
        raise GuaranteeExceeded(f"{many} of {len(report.rows)} rows exceed their bound ({names})")


def show(report: "AuditReport", out: Path | None) -> None:
    """Print the answer and a table of all rows."""
    screen = console()
    if not screen.is_terminal:
        screen.width = max(screen.width, 100)  # a pipe has no width, and the table needs some
    paragraph(screen, _answer(report))
    if report.claimed:
        paragraph(screen, report.power)
    screen.print()
    screen.print(_table(report))
    screen.print()
    for row in report.exceeded:
        screen.print(f"EXCEEDED: {row.attack}, {row.adversary}, {row.about}")
    if out is not None:
        screen.print(f"audit: {out}")
    else:
        screen.print("(--json has what each bound is, and notes)")


def _table(report: "AuditReport") -> Table:
    """Return a line for each row, those of one adversary together."""
    from lumos.audit.table import shown

    table = Table(box=None, header_style="")
    table.add_column("adversary", max_width=18)
    table.add_column("target")
    broken = any(row.undefended is not None for row in report.rows)
    for name in ("measured", "interval", "bound"):
        table.add_column(name, justify="right", no_wrap=True)
    if broken:
        table.add_column("without the defence", justify="right", max_width=12)
    table.add_column("verdict", max_width=8)
    for adversary, rows in report.by_adversary().items():
        for row in rows:
            measured, interval, _, bound = report.figures(row)
            cells = [adversary, row.about, measured, interval, bound, report.verdict(row)]
            if broken:
                cells[5:5] = ["–" if row.undefended is None else shown(row.undefended)]
            table.add_row(*map(Text, cells))
    return table


def _answer(report: "AuditReport") -> str:
    """Return one sentence: the numbers of bounds that were tested and exceeded."""
    if not report.rows:
        return "These attacks have nothing to attack under these settings: no rows."
    exceeded = len(report.exceeded)
    verdict = f"{exceeded} exceed their bound" if exceeded else "no bound is exceeded"
    victim = f"the {report.profile} profile"
    if report.settings.get("deployment"):
        victim = f"{report.devices} real devices in virtual time"
    return (
        f"On {report.graph}, attacks on {victim} took {len(report.rows)} "
        f"measurements, {len(report.claimed)} of them against a bound that is claimed: {verdict} "
        f"(99.9 % confidence for all together, {sum(report.seconds.values()):.0f} s)."
    )
