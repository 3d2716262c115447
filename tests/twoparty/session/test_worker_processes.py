"""Worker processes: the same answers, clear errors, and no worker that outlives its parent."""

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from lumos.device import Shard, cut
from lumos.errors import ProtocolError
from lumos.exchange import Endpoint, Program
from lumos.exchange.endpoint import idle_program
from lumos.exchange.transports.loopback import Loopback
from lumos.graph import Graph
from lumos.twoparty.comparer import SecureComparer, Signs
from lumos.twoparty.comparison import PROTOCOL, Spec
from lumos.twoparty.workers import ComparedPairs, InProcess, Steps, WorkerProcesses, Workers, _homes


@pytest.fixture
def workers() -> Iterator[WorkerProcesses]:
    pool = WorkerProcesses(2)
    yield pool
    pool.close()


def path(devices: int) -> Shard:
    """One shard with all devices of a path."""
    edges = np.stack([np.arange(devices - 1), np.arange(1, devices)], axis=1)
    return cut(Graph.from_edges(edges, devices=devices), 1, seed=0)[0]


def compare_all(workers: Workers) -> Callable[[Shard, Endpoint], Program[Signs]]:
    """All neighbours compare."""

    def device(shard: Shard, endpoint: Endpoint) -> Program[Signs]:
        comparer = SecureComparer(shard, endpoint, workers)
        pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
        return comparer.three_way(pairs, shard.devices[pairs.rows] % 7, 4)

    return device


def run(shard: Shard, program: Callable[[Shard, Endpoint], Program[Signs]]) -> Signs:
    (signs,), _ = Loopback([shard]).run(program, lambda _: idle_program())
    return signs


def test_the_same_answers_as_in_one_process(workers: WorkerProcesses, must_end: None) -> None:
    shard = path(9)
    apart, here = run(shard, compare_all(workers)), run(shard, compare_all(InProcess()))
    assert np.array_equal(apart, here)
    assert set(here.tolist()) == {-1, 1}


@pytest.mark.parametrize("count", [2, 3, 8])
@pytest.mark.parametrize("apart", [(2, 1), (1, 1), (1, 1000), (7, 3)])
def test_senders_and_receivers_are_spread(count: int, apart: tuple[int, int]) -> None:
    """Each end of a session elsewhere; of all senders, each worker has about its share."""
    step, distance = apart
    senders = np.arange(0, 1000 * step, step)
    at_senders = _homes(np.stack([senders, senders + distance], axis=1), count)
    at_receivers = _homes(np.stack([senders + distance, senders], axis=1), count)
    assert np.count_nonzero(at_senders == at_receivers) == 0
    for homes in (at_senders, at_receivers):
        shares = np.bincount(homes, minlength=count) / 1000
        assert shares.min() > 0.6 / count
        assert shares.max() < 1.4 / count


def test_steps_are_reported(workers: WorkerProcesses, must_end: None) -> None:
    """Every step of every party once: opening, points, table, answer, and the end."""
    reports: list[int] = []
    shard = path(300)

    def device(shard: Shard, endpoint: Endpoint) -> Program[Signs]:
        comparer = SecureComparer(shard, endpoint, workers, reports.append)
        pairs = ComparedPairs.of_slots(shard, np.arange(len(shard.neighbours)))
        return comparer.three_way(pairs, shard.devices[pairs.rows] % 7, 4)

    run(shard, device)
    assert sum(reports) == 299 * 5


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize("when", ["before the run", "after some steps"])
def test_a_worker_that_dies_ends_the_run(
    workers: WorkerProcesses, must_end: None, victim: int, when: str
) -> None:
    shard = path(9)
    process = workers._workers[victim].process

    def kill() -> None:
        os.kill(process.pid, signal.SIGKILL)
        process.wait(timeout=120)

    program = compare_all(workers)
    if when == "before the run":
        kill()
    else:
        device = program

        def program(shard: Shard, endpoint: Endpoint) -> Program[Signs]:
            inner = device(shard, endpoint)
            inbox = yield next(inner)
            kill()
            while True:
                try:
                    inbox = yield inner.send(inbox)
                except StopIteration as stop:
                    return stop.value

    with pytest.raises(ProtocolError, match="a worker process ended"):
        run(shard, program)


def test_a_worker_that_dies_while_it_works(workers: WorkerProcesses, must_end: None) -> None:
    """Stopped, so that it has taken its work, then killed: we are waiting for its answer."""
    shard = path(9)
    process = workers._workers[0].process
    os.kill(process.pid, signal.SIGSTOP)
    killer = threading.Timer(0.5, lambda: os.kill(process.pid, signal.SIGKILL))
    killer.start()
    with pytest.raises(ProtocolError, match="a worker process ended"):
        run(shard, compare_all(workers))
    killer.join()


def test_an_error_in_a_worker_is_one_clear_error(workers: WorkerProcesses, must_end: None) -> None:
    ends = np.array([[0, 1], [1, 0]]).tobytes()
    spec, values = PROTOCOL.encode(Spec(4), np.array([4711, 4711]))
    wrong = Steps(protocol="compare", ends=ends, spec=spec, values=values)
    assert "4711" not in repr(wrong)
    with pytest.raises(
        ProtocolError, match=r"^BadValue: a value does not fit the 4 bits"
    ) as caught:
        workers.run(wrong)
    assert "4711" not in str(caught.value)
    with pytest.raises(ProtocolError, match="have ended"):
        workers.run(wrong)


def test_an_unforeseen_error_shows_its_type_only(workers: WorkerProcesses, must_end: None) -> None:
    unknown = Steps(protocol="compare", ends=np.array([[4711, 4712]]).tobytes(), width=8)
    with pytest.raises(ProtocolError, match=r"^a worker process met KeyError$"):
        workers.run(unknown)


def test_an_interrupt_is_left_to_the_parent(workers: WorkerProcesses, must_end: None) -> None:
    run(path(3), compare_all(workers))  # they are up and serving
    for worker in workers._workers:
        os.kill(worker.process.pid, signal.SIGINT)
    both = Steps(protocol="compare", ends=np.array([[0, 1], [1, 0]]).tobytes(), results=True)
    assert workers.run(both).view(np.int64).ravel().tolist() == [-1, -1]


_PARENT = """
import sys, time
from lumos.twoparty.workers import WorkerProcesses, _homes

pool = WorkerProcesses(2)
print(*(worker.process.pid for worker in pool._workers), flush=True)
time.sleep(60)
"""


def test_workers_end_with_their_parent(must_end: None) -> None:
    parent = subprocess.Popen([sys.executable, "-c", _PARENT], stdout=subprocess.PIPE, text=True)
    assert parent.stdout is not None
    workers = [int(pid) for pid in parent.stdout.readline().split()]
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert len(workers) == 2
    while any(_alive(pid) for pid in workers):  # `must_end` limits the wait
        time.sleep(0.01)


def _alive(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except FileNotFoundError:
        return False
