"""What tests of several folders share; torch and OpenBLAS are kept to one thread."""

import dataclasses
import gc
import os
import pickle
import signal
from collections.abc import Callable, Generator, Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest
import scipy.linalg  # noqa: F401 - it has an OpenBLAS of its own
import torch
from hypothesis import settings
from tests.session_doubles import Stream, Toy
from tests.shared_runs import SharedFolders

from lumos.crypto import entropy
from lumos.exchange import LedgerReport
from lumos.graph import Graph, load
from lumos.machine import _loaded_openblas, _openblas

if TYPE_CHECKING:
    from tests.report.chromium import Browser

# Properties are tried with so many examples where a test does not say; more in `make evidence`.
# No deadline: how long an example takes depends on what else the machine does.
EXAMPLES = int(os.environ.get("LUMOS_EXAMPLES", "50"))
settings.register_profile("lumos", max_examples=EXAMPLES, deadline=None)
settings.load_profile("lumos")

torch.set_num_threads(1)  # sums in one order: runs can be compared bit by bit
for pool in _openblas(_loaded_openblas()):  # tests run side by side: a second thread only waits
    pool.set(1)

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:  # as in the background of a script
    signal.signal(signal.SIGINT, signal.default_int_handler)  # or processes of tests ignore it too

Differences = Callable[[LedgerReport, LedgerReport], list[str]]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Modules and thousands of tests stay to the end: no search for garbage goes through them."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True)
def _torch_is_left_as_it_was() -> Iterator[None]:
    """A run that leaves gradients switched off spoils the next one."""
    assert torch.is_grad_enabled()
    yield
    left = torch.is_grad_enabled()
    torch.set_grad_enabled(True)
    assert left, "a run left torch with gradients switched off"


@pytest.fixture(scope="session")
def shared(tmp_path_factory: pytest.TempPathFactory) -> SharedFolders:
    """Folders and trained runs that are made once for all test processes."""
    return SharedFolders.of_session(tmp_path_factory)


@pytest.fixture(scope="session")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Browser"]:
    """A browser, started once in each test process that opens pages."""
    from tests.report.chromium import WANTED, browser, find

    if find() is None:
        pytest.skip(WANTED)
    with browser(tmp_path_factory.mktemp("chromium")) as running:
        yield running


@pytest.fixture(scope="session")
def sixty() -> Graph:
    return load("demo:60")


@pytest.fixture(scope="session")
def two_hundred() -> Graph:
    return load("demo:200")


@pytest.fixture
def data_dir() -> Path:
    """The folder of the real graphs: LUMOS_DATA, or shared/data beside the repository."""
    folder = Path(os.environ.get("LUMOS_DATA") or Path(__file__).parents[2] / "shared" / "data")
    if not folder.is_dir():
        pytest.skip("the real graphs are not here; set LUMOS_DATA to the folder that holds them")
    return folder


_DRAWINGS: dict[bytes, Any] = {}
"""By function and arguments, what was drawn in this test process."""


@pytest.fixture
def drawn_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Drawings with the same contents are drawn once; for tests of everything around them."""
    from lumos.report import charts

    draw = charts._drawn

    def drawn(drawing: "partial[Any]") -> Any:
        key = pickle.dumps(
            (drawing.func.__qualname__, drawing.args, sorted(drawing.keywords.items()))
        )
        if key not in _DRAWINGS:
            _DRAWINGS[key] = draw(drawing)
        return _DRAWINGS[key]

    monkeypatch.setattr(charts, "_drawn", drawn)


@pytest.fixture
def toy() -> Toy:
    """A group for statistics: right distributions, no hardness."""
    return Toy()


@pytest.fixture
def seeded(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Entropy that depends only on the test's name, so that its statistics never flicker."""
    monkeypatch.setattr(entropy, "draw", Stream(request.node.name))


@pytest.fixture
def stream() -> type[Stream]:
    """Repeatable streams of bytes."""
    return Stream


@pytest.fixture
def ledger_differences() -> Differences:
    """The names of the fields in which two ledger reports differ; arrays bit by bit."""

    def differences(one: LedgerReport, other: LedgerReport) -> list[str]:
        different = []
        for field in dataclasses.fields(LedgerReport):
            if field.name == "clear_traffic":  # depends on the number of shards
                continue
            left, right = getattr(one, field.name), getattr(other, field.name)
            if field.name == "topics":
                left = {name: vars(line) for name, line in left.items()}
                right = {name: vars(line) for name, line in right.items()}
            same = np.array_equal(left, right) if isinstance(left, np.ndarray) else left == right
            if not same:
                different.append(field.name)
        return different

    return differences


@pytest.fixture
def must_end() -> Iterator[None]:
    """A test that hangs fails instead."""

    def ring(*_: object) -> None:
        raise TimeoutError("the test hung for five minutes")

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(300)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)
