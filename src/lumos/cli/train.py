"""`lumos train`: from a graph to a model, and a report of what the run exposed."""

import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.table import Table

from lumos.cli.common import Common, console, print_json, progress_bar, say
from lumos.cli.options import given, options_of
from lumos.cli.seeds_screen import several_seeds
from lumos.cli.trees import announce
from lumos.cli.wording import as_options
from lumos.errors import UsageError
from lumos.graph import ReadOptions, load
from lumos.storage import PRIVATE, private_folder
from lumos.training.config import COMMON, Config
from lumos.training.profiles import PROFILES


def _by_profile(setting: str) -> str:
    """The default of a setting for each profile, and for links where it differs there."""
    words = []
    for name in PROFILES:
        labels, links = (
            Config.of(profile=name, task=task).flat()[setting] for task in ("classify", "link")
        )
        words.append(f"{labels} for {name}" + f" ({links} for link)" * (links != labels))
    return "; ".join(words)


if TYPE_CHECKING:
    from lumos.runs.events import EpochEvent, OnEpoch
    from lumos.runs.run import Run

    Options = Any
else:
    Options = options_of(
        "Options",
        *COMMON.values(),
        *(PROFILES[name].settings for name in PROFILES),
        balancer=_by_profile("balancer"),
        epochs=_by_profile("epochs"),
        activate_last="for classify, not for link",
    )

SHARED, NOTHING, REFUSE = Common(), Options(), ReadOptions()


def train(
    graph: str,
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[ReadOptions, Parameter(name="*")] = REFUSE,
    out: Path | None = None,
    resume: Annotated[bool, Parameter(negative="")] = False,
    tensorboard: Annotated[bool, Parameter(negative="")] = False,
    seeds: int = 1,
    common: Common = SHARED,
) -> None:
    """Train a graph neural network across devices, without pooling their data.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    out
        Run folder to write: settings, metrics, checkpoints, model, embeddings, ledger.
    resume
        Continue the interrupted run in --out.
    tensorboard
        Also write the metrics for TensorBoard into --out (needs lumos[tensorboard]).
    seeds
        Train with so many seeds, from --seed on, and print mean ± standard deviation; with --out,
        run folders are OUT/seed-0, OUT/seed-1, …
    """
    config = Config.asked(**given(options))
    if tensorboard and seeds != 1:
        raise UsageError("`tensorboard` shows one run; leave out `seeds`")
    if tensorboard and out is None:
        raise UsageError("--tensorboard needs --out: the folder to write to")
    from lumos.runs import train as runs  # torch takes a second to import: not for a wrong option

    loaded = load(graph, data_dir=common.data_dir, **vars(reading))
    announce(loaded, config.trees)
    if seeds != 1:
        source = {"spec": runs.findable(graph), **vars(reading)}
        several_seeds(loaded, config, seeds, source, out, resume, common)
        return
    try:
        with progress_bar("training") as bar, _writer(out if tensorboard else None) as on_epoch:
            run = runs.train(
                loaded,
                config,
                seed=common.seed,
                shards=common.shards,
                source={"spec": runs.findable(graph), **vars(reading)},
                out=out,
                resume=resume,
                progress=bar,
                on_epoch=on_epoch,
            )
    except KeyboardInterrupt:
        if out is not None and (out / "run.json").exists():
            say(f"interrupted; the same command with --resume continues in {out}")
        raise
    if common.json:
        print_json(run.summary())
    else:
        show(run, out)


@contextmanager
def _writer(out: Path | None) -> "Iterator[OnEpoch | None]":
    """A callback that writes every epoch for TensorBoard, or None."""
    if out is None:
        yield None
        return
    try:
        from torch.utils.tensorboard import SummaryWriter
    except ImportError:
        raise UsageError(
            "--tensorboard needs the package tensorboard; type: pip install 'lumos[tensorboard]'"
        ) from None
    writer: Any = None

    def write(event: "EpochEvent") -> None:
        nonlocal writer
        if writer is None:  # only once the run has begun: it may be refused
            private_folder(out / "tensorboard")
            writer = SummaryWriter(str(out / "tensorboard"))
        for name in ("loss", "score", "seconds"):
            if (value := getattr(event, name)) is not None:
                writer.add_scalar(f"{event.arm}/{name}", value, event.epoch)

    try:
        yield write
    finally:
        if writer is not None:
            writer.close()
            for file in (out / "tensorboard").iterdir():
                file.chmod(PRIVATE)  # as all files of a run folder


def show(run: "Run", out: Path | None) -> None:
    """The result for people."""
    screen = console()
    config, ledger = run.config, run.ledger
    summary = run.summary()
    noisy = config.profile_settings.epsilon < float("inf")
    epsilon = f"ε = {config.profile_settings.epsilon:g}" if noisy else "no noise (ε = inf)"
    budget = config.profile.texts(config).budget or epsilon
    used = not config.profile.ignores("backbone", config)
    screen.print(
        f"{run.about.graph}: {run.about.devices:,} devices, {run.about.edges:,} edges · "
        f"{config.train.task} · profile {config.train.profile} · "
        + f"{config.model.backbone} · " * used
        + budget
    )
    balanced = config.trees.balancer != "none"
    trees = f"trees {config.trees.balancer}, comparisons {run.trees.compare} · " * balanced
    screen.print(
        f"{trees}updates {config.train.aggregate} · coins {config.train.coins} · "
        f"seed {run.about.seed}"
    )
    for note in run.about.notes:
        screen.print(f"note: {note}")
    for improvement in config.improvements():
        screen.print(as_options(f"differs from the paper: {improvement}"))
    screen.print()
    _show_scores(run)
    each = run.cost.per_epoch
    table = Table(show_header=False, box=None)
    best = run.training.best_epoch
    chosen = f", weights of epoch {best}" if best < summary["epochs"] else ""
    table.add_row("epochs", f"{summary['epochs']}{chosen}")
    table.add_row(
        "per device",
        f"{ledger.messages_sent.mean():,.0f} messages and {ledger.bytes_sent.mean():,.0f} bytes "
        f"sent in all, {ledger.rounds:,} rounds",
    )
    table.add_row(
        "per device and epoch",
        f"{each.messages_sent_mean:,.1f} messages and {each.bytes_sent_mean:,.0f} bytes "
        f"sent, at most {each.messages_sent_largest:,.0f} and "
        f"{each.bytes_sent_largest:,.0f}; {each.rounds:,.0f} rounds",
    )
    if noisy:
        edges = f"; {ledger.edge_epsilon:g} on its edges" * (ledger.edge_epsilon > 0)
        spent = (
            f"{ledger.epsilon_per_receiver:g} per receiver, {ledger.epsilon_collusion:,g} if all "
            "receivers of a device collude (largest)"
        )
        if not ledger.epsilon_collusion:
            spent = "0 on features and labels: no release depends on them"
        table.add_row("ε of messages", spent + edges)
    if ledger.scores:
        table.add_row(
            "answers in training",
            f"{ledger.scores:,} pairs learnt the level of their score, "
            f"{ledger.comparison_bits / ledger.scores:g} bits each",
        )
    table.add_row(
        "seconds",
        f"{run.cost.seconds:.1f} in all, {run.cost.seconds_per_epoch:.3f} per epoch; "
        f"{summary['peak_rss_mb']:,.0f} MB peak",
    )
    screen.print(table)
    screen.print()
    if run.promises:
        _show_promises(run.promises)
    screen.print("What was exposed, and to whom:")
    screen.print(textwrap.fill(as_options(run.privacy.exposed), min(screen.width, 100)))
    screen.print()
    _show_topics(run)
    if out is not None:
        screen.print(f"\nrun folder: {out} (lumos predict {out})")


def _show_topics(run: "Run") -> None:
    table = Table("topic", "door", box=None)
    table.add_column("messages", justify="right")
    table.add_column("bytes", justify="right")
    for report in (run.trees.ledger, run.ledger):
        for name, line in report.topics.items():
            table.add_row(name, line.door, f"{line.messages:,}", f"{line.bytes:,}")
    console().print(table)
    console().print("(who learns what from each topic: --json, or docs/privacy.md)")
    console().print()


def _show_promises(promises: list[dict[str, str]]) -> None:
    """What is promised about what, against whom: one block for each kind of thing."""
    screen = console()
    screen.print("What is promised (docs/strict.md explains each entry):")
    about: dict[tuple[tuple[str, str], ...], list[str]] = {}
    for row in promises:  # rows with the same promises are printed once
        cells = tuple((who, promise) for who, promise in row.items() if who != "about")
        about.setdefault(cells, []).append(row["about"])
    for cells, names in about.items():
        table = Table(show_header=False, box=None, padding=(0, 1, 0, 2))
        for who, promise in cells:
            table.add_row(who, promise)
        screen.print(f" {', '.join(names)}")
        screen.print(table)
    screen.print()


def _show_scores(run: "Run") -> None:
    texts = run.config.profile.texts(run.config)
    what = "accuracy" if run.config.train.task == "classify" else "auc"
    shown = {"accuracy": "accuracy", "auc": "ROC-AUC"}[what]
    table = Table(f"{shown} (observer)", box=None)
    table.add_column("validation", justify="right")
    table.add_column("test", justify="right")
    rows = (
        ("this run", run.metrics),
        (texts.own, run.own),
        (f"control: {texts.control}", run.control),
    )
    for name, scores in rows:
        if scores is not None:
            figures = [scores[f"{part}_{what}"] for part in ("val", "test")]
            table.add_row(
                name,
                *(f"{100 * f:.2f} %" if what == "accuracy" else f"{f:.4f}" for f in figures),
            )
    console().print(table)
    if what == "accuracy":
        console().print(
            f"test macro-F1 {100 * run.metrics['test_macro_f1']:.2f} %, calibration error "
            f"{100 * run.metrics['test_calibration_error']:.2f} points"
        )
    estimates = run.training.estimates
    if measured := [name for name in estimates if f"{name}_error" in estimates and what == "auc"]:
        levels = ", ".join(
            f"{name.removeprefix('levels_auc_')} {estimates[name]:.3f} ± "
            f"{estimates[f'{name}_error']:.3f}"
            for name in measured
        )
        console().print(
            f"levels of held-back edges against strangers, by noisy histograms: {levels}"
        )
    elif estimates:
        console().print(
            "without true labels, from the noisy vote: accuracy "
            f"{100 * estimates['voted_accuracy']:.1f} ± "
            f"{100 * estimates['voted_accuracy_error']:.1f} %, own features "
            f"{100 * estimates['own_voted_accuracy']:.1f} ± "
            f"{100 * estimates['own_voted_accuracy_error']:.1f} %"
        )
    if run.training.choice:
        choice = run.training.choice
        meaning = f" ({texts.choices[choice]})" if what == "auc" and choice in texts.choices else ""
        console().print(f"{texts.chooser} chose: {choice}{meaning}")
    if run.training.caution:
        console().print(as_options(f"note: {run.training.caution}"))
    if run.promises:
        console().print("(scores are the observer's, from true data: no promise covers them)")
    if run.control is None:
        console().print(f"(--control adds a run with {texts.control})")
    console().print()
