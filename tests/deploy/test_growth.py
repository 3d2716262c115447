"""What participants keep, in memory and on disk, does not grow with the epochs, however many.

One thing does, and is declared: the losses of all epochs, 8 bytes each.
"""

import gc
from collections import Counter
from collections.abc import Collection
from pathlib import Path
from types import BuiltinFunctionType, FunctionType, ModuleType

import numpy as np
from tests.deploy.crashing_disk import quick_disk  # noqa: F401
from tests.deploy.disk_federation import DiskFederation, parts_of_devices

from lumos.deploy.state import read_snapshot
from lumos.deploy.status import RunHistory
from lumos.deploy.virtual import RUN
from lumos.training.config import Config

FIRST, SECOND = 36, 60
"""Epochs before each of two windows; numbers in both are as long when they are written."""
WINDOW = 6
"""Epochs in which participants are measured: the least counts, as packets are on their way."""


def contents(root: object) -> Counter[str]:
    """How much is in everything that an object refers to, directly or not, by type."""
    seen = {id(root)}
    found: Counter[str] = Counter()
    stack = [root]
    while stack:
        one = stack.pop()
        name = type(one).__qualname__
        if isinstance(one, int | float):
            continue  # the interpreter shares some of them
        found[name] += 1
        if isinstance(one, Collection) and not isinstance(one, (str, np.ndarray)):
            found[f"in {name}"] += len(one)
        if isinstance(one, np.ndarray):
            found["bytes in arrays"] += one.nbytes
        # What belongs to modules is everybody's.
        within = list(one.__closure__ or ()) if isinstance(one, FunctionType) else []
        for other in within or gc.get_referents(one):
            shared = isinstance(other, type | ModuleType | BuiltinFunctionType)
            if id(other) not in seen and not shared and not _of_module(other):
                seen.add(id(other))
                stack.append(other)
    return found


def _of_module(one: object) -> bool:
    return isinstance(one, dict) and "__builtins__" in one


def files(federation: DiskFederation) -> Counter[str]:
    """The bytes of every file of every participant, and of every array in their snapshots."""
    found = Counter(
        {
            str(path.relative_to(federation.path)): path.stat().st_size
            for path in federation.path.rglob("*")
            if path.is_file()
        }
    )
    for path in federation.path.rglob("snapshot.bin"):
        for name, array in (read_snapshot(path, "") or {}).items():
            found[f"{path.parent.name}: {name}"] = array.nbytes
    return found


def least(measured: list[Counter[str]]) -> Counter[str]:
    """The least of each count."""
    names = set().union(*measured)
    return Counter({name: min(of[name] for of in measured) for name in names})


def test_nothing_grows_with_the_epochs(tmp_path: Path) -> None:
    config = Config.asked(
        aggregate="secure",
        randomness="seeded",
        epochs=1_000_000,
        encoder_epochs=2,
        propagated_labels=1,
    )
    parts = parts_of_devices("demo:12", tmp_path / "parts")
    federation = DiskFederation(parts, config, path=tmp_path / "participants")
    history = RunHistory(RUN, tmp_path / "participants" / "coordinator" / "history.json")
    federation.coordinator.job._on_epoch = history.on_epoch

    def go_on(phase: int) -> None:
        federation.run(lambda: federation.coordinator.phase >= phase, limit=float("inf"))

    seen = []
    for epochs in (FIRST, SECOND):
        for victim in (3, 7, 11):
            go_on(epochs - 20 + victim)
            federation.kill(victim)
            federation.start(victim)
        measured: list[list[Counter[str]]] = []
        for phase in range(epochs + 1, epochs + WINDOW + 1):
            go_on(phase)
            gc.collect()
            kept = map(contents, (history, *federation.participants.values()))
            measured.append([files(federation), *kept])
        seen.append([least(list(of_one)) for of_one in zip(*measured, strict=True)])
    before, after = seen
    losses = "coordinator/losses.bin"
    assert after[0].pop(losses) - before[0].pop(losses) == 8 * (SECOND - FIRST)
    for one, other in zip(before, after, strict=True):
        other["in array"] -= min(other["in array"], SECOND - FIRST)  # the losses in memory
        grown = {name: (one[name], of) for name, of in other.items() if of > one[name]}
        assert not grown
