"""Training runs in processes of their own, so that peak memory is theirs."""

import json
import os
import subprocess
import sys
import time
from typing import Any

from lumos.errors import LumosError


class CommandFailed(LumosError):
    """A command that a measurement runs did not succeed."""


def train_alone(graph: str, seed: int, *options: str) -> dict[str, Any]:
    """The JSON of `lumos train GRAPH …`, with `clock` and `cpu` seconds of the whole process.

    Raises:
        CommandFailed: it failed; the message is its last line.
    """
    words = [sys.executable, "-m", "lumos", "train", graph, "--seed", str(seed), "--json", *options]
    before, start = os.times(), time.perf_counter()
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    clock, after = time.perf_counter() - start, os.times()
    if done.returncode:
        said = done.stderr.strip().splitlines() or [f"status {done.returncode}"]
        raise CommandFailed(said[-1].removeprefix("lumos: "))
    result: dict[str, Any] = json.loads(done.stdout)
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    return {**result, "clock": clock, "cpu": cpu}
