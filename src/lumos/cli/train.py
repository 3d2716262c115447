"""`lumos train`: from a graph to a model, and a report of what the run exposed."""

from collections.abc import Collection
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lumos.cli.common import Common, continued_by, placed, print_json
from lumos.cli.options import AS_IT_IS, Reading, given, options_of
from lumos.cli.screen import several_seeds, show
from lumos.cli.trees import announce
from lumos.errors import UsageError
from lumos.graph import Graph
from lumos.ranks.world import TIMEOUT, World, is_rank, joined, restarted
from lumos.training.config import (
    COMMON,
    PROFILE_DEFAULTS,
    TRAIN_OPTIONS,
    Config,
    default_by_profile,
)
from lumos.training.profile import PROFILES


def run_options(name: str, only: Collection[str] = TRAIN_OPTIONS, **defaults: str) -> type[Any]:
    """Return a dataclass with the options of a run.

    Args:
        name: of the dataclass.
        only: settings that are options.
        defaults: what the help says of defaults that are others here.
    """
    by_profile = {setting: default_by_profile(setting) for setting in PROFILE_DEFAULTS}
    groups = [*COMMON.values(), *(PROFILES[profile].settings for profile in PROFILES)]
    return options_of(name, *groups, only=only, **{**by_profile, **defaults})


if TYPE_CHECKING:
    Options = Any
else:
    Options = run_options("Options")

SHARED, NOTHING = Common(), Options()


def train(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    split: Annotated[str | None, placed("split")] = None,
    out: Annotated[Path | None, placed("out")] = None,
    resume: Annotated[bool, placed("resume", negative="", show_default=False)] = False,
    seeds: Annotated[int, placed("seeds")] = 1,
    shards: Annotated[int, placed("shards")] = 1,
    rank_timeout: Annotated[float, placed("rank_timeout")] = TIMEOUT,
    common: Common = SHARED,
) -> None:
    """Train a graph neural network across devices, without pooling their data.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    split
        Who trains, validates and tests: a file (CSV id,split; JSON or npz with train, val and test;
        for links source,target,split with the held-out edges), shares of a random split, as
        60/20/20, or random. By default the masks of the graph, otherwise 50/25/25, 80/5/15 of the
        edges for links.
    out
        Run folder to write: settings, metrics, checkpoints, model, embeddings, ledger.
    resume
        Continue the interrupted run in --out.
    seeds
        Train with this number of seeds, from --seed on, and print mean ± standard deviation. With
        --out, run folders are OUT/seed-0, OUT/seed-1, …
    shards
        Number of parts in which devices are simulated; the result is the same.
    rank_timeout
        Under torchrun (docs/scale.md), seconds after which a rank that does not answer ends the
        run.
    """
    config = Config.asked(**given(options))
    if options.checkpoint_every is not None:
        _refuse_unkept(config, out)
    if not 0 < rank_timeout < float("inf"):
        raise UsageError(f"`rank_timeout` must be above 0 seconds, got {rank_timeout:g}")
    if is_rank() and seeds != 1:
        raise UsageError("ranks of torchrun are of one run; leave out `seeds`")
    with joined(rank_timeout) if is_rank() else nullcontext() as world:
        resume = resume or (restarted() and out is not None and (out / "run.json").exists())
        _train(graph, config, reading, split, out, resume, seeds, shards, common, world)


def _train(
    graph: str,
    config: Config,
    reading: Reading,
    split: str | None,
    out: Path | None,
    resume: bool,
    seeds: int,
    shards: int,
    common: Common,
    world: World | None,
) -> None:
    """The command in one process: all of the run, or the part of a rank."""
    from lumos.runs import train as runs  # torch takes a second to import: not for a wrong option

    hosting = runs.Hosting(shards, world)
    first = hosting.observer.first
    given_graph = runs.read_input(
        graph, data_dir=common.data_dir, split=split, reading=given(reading), whole=seeds != 1
    )
    loaded = given_graph.graph
    if first and isinstance(loaded, Graph):
        announce(loaded, config.trees)
    if seeds != 1 and isinstance(loaded, Graph):
        several_seeds(loaded, config, seeds, shards, given_graph.source, split, out, resume, common)
        return
    with continued_by(lambda: _resume_hint(out)):
        run = runs.train_rank(
            given_graph,
            config,
            seed=common.seed,
            hosting=hosting,
            split=split,
            out=out,
            resume=resume,
            progress=True,
        )
    if run is None:  # rank 0 has it
        return
    if common.json:
        print_json(run.summary())
    else:
        show(run, out)


def _refuse_unkept(config: Config, out: Path | None) -> None:
    """Refuse `checkpoint_every` where no checkpoint would be written.

    Raises:
        UsageError: none would be.
    """
    if out is None:
        raise UsageError("`checkpoint_every` needs `out`: the folder to write to")
    if config.train.randomness != "seeded":
        raise UsageError(
            f"`checkpoint_every` has no effect with `randomness='{config.train.randomness}'`, only "
            "with `randomness='seeded'`; leave it out"
        )


def _resume_hint(out: Path | None) -> str | None:
    """Return how to continue an interrupted run; None where nothing was written."""
    if out is None or not (out / "run.json").exists():
        return None
    return f"the same command with --resume continues in {out}"
