"""`--ranks`: start the same command in several processes, and say how they ended."""

import sys
from pathlib import Path

from lumos.cli.common import TYPED, say
from lumos.cli.wording import as_options
from lumos.errors import UsageError
from lumos.ranks.supervisor import Supervisor, interpreter
from lumos.session.workers import cores

OWN = ("--ranks", "--max-restarts")
"""Options of the supervisor, with one value each."""


def refuse_ranks(
    ranks: int | None,
    max_restarts: int,
    rank_timeout: float,
    out: Path | None,
    *,
    seeds: int,
    shards: int,
    is_rank: bool = False,
) -> None:
    """Refuse options about ranks that have no meaning together.

    Args:
        is_rank: this process is a rank already.
        others: options of `lumos train`.

    Raises:
        UsageError: there are some.
    """
    if ranks is not None and ranks < 1:
        raise UsageError(f"`ranks` must be 1 or more, got {ranks}")
    if not 0 < rank_timeout < float("inf"):
        raise UsageError(f"`rank_timeout` must be above 0 seconds, got {rank_timeout:g}")
    if max_restarts < 0:
        raise UsageError(f"`max_restarts` must be 0 or more, got {max_restarts}")
    if is_rank and ranks is not None:
        raise UsageError(
            "`ranks` starts ranks, and this process is one already: RANK and WORLD_SIZE are set in "
            "its environment; leave it out under torchrun, otherwise unset them"
        )
    if max_restarts and ranks is None:
        raise UsageError("`max_restarts` starts ranks again; it needs `ranks`")
    if max_restarts and out is None:
        raise UsageError("`max_restarts` needs `out`: the folder with the checkpoints")
    if (is_rank or ranks is not None) and seeds != 1:
        raise UsageError("`ranks` are of one run; leave out `seeds`")
    if ranks is not None and shards != 1:
        raise UsageError("a rank hosts one shard; leave out `shards`, or `ranks`")


def start_ranks(ranks: int, max_restarts: int, timeout: float, out: Path | None) -> None:
    """Run the present command in `ranks` processes, and end with their status.

    Raises:
        SystemExit: they did not succeed.
        KeyboardInterrupt: interrupted; all ranks are ended.
    """
    words = without(TYPED.get(), OWN)
    threads = max(1, cores() // ranks)
    supervisor = Supervisor([*interpreter(), *words], ranks, threads, timeout)

    def started() -> bool:
        return out is not None and (out / "run.json").exists()

    def going_on() -> list[str]:
        return ["--resume"] if started() and "--resume" not in words else []

    def hint() -> str | None:
        return f"the same command with --resume continues in {out}" if started() else None

    try:
        end = supervisor.run_again(
            max_restarts, going_on, lambda line: say(f"lumos: {as_options(line)}")
        )
    except KeyboardInterrupt:
        raise KeyboardInterrupt(*filter(None, [hint()])) from None
    if end.status:
        if end.line:
            say(f"lumos: {'; '.join(filter(None, [as_options(end.line), hint()]))}")
        sys.exit(end.status)


def without(words: list[str], options: tuple[str, ...]) -> list[str]:
    """The words of a command line without some options and their values."""
    kept, skip = [], False
    for word in words:
        if skip:
            skip = False
        elif word.replace("_", "-") in options:
            skip = True
        elif word.partition("=")[0].replace("_", "-") not in options:
            kept.append(word)
    return kept
