"""One operating-system process for each device, and one for the coordinator.

Run as a program this is a nursery: it has loaded Lumos, knows no graph, and forks as many
processes as it is sent pairs of pipes. A process knows what the first frame of its own pipe says.
"""

import os
import signal
import socket
import sys

import msgspec
import numpy as np
from tests.exchange.post import Post, packed, unpacked

from lumos.device import PrivateRandomness, PublicRandomness, Shard
from lumos.exchange import Endpoint, Inbox, Outbox, add_up
from lumos.exchange.endpoint import idle_program
from lumos.trees.balancers.mcmc import mcmc, mcmc_coordinator
from lumos.trees.balancers.optimal import optimal
from lumos.twoparty.comparer import IDEAL_TOPICS, IdealComparer


class Birth(msgspec.Struct, tag="birth"):
    """All that a device is told: itself, its neighbours, its secret; the rest is public."""

    device: int
    total: int
    seed: int
    iterations: int
    """Steps of `mcmc`; 0 stands for `optimal`."""
    neighbours: list[int]
    secret: list[int]


class Report(msgspec.Struct, tag="report"):
    """What the observer of the test collects at the end."""

    kept: list[int]
    sent: int
    received: int
    bytes_sent: int
    bytes_received: int
    own_rounds: int
    rounds: int
    comparison_bits: float
    topics: dict[str, tuple[int, int]]


class Failure(msgspec.Struct, tag="failure"):
    why: str


Frame = Birth | Report | Failure | Post


def write(pipe: int, frame: bytes) -> None:
    rest = memoryview(len(frame).to_bytes(4, "little") + frame)
    while rest:
        rest = rest[os.write(pipe, rest) :]


def read(pipe: int) -> bytes:
    return _exactly(pipe, int.from_bytes(_exactly(pipe, 4), "little"))


def _exactly(pipe: int, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = os.read(pipe, size - len(data))
        if not more:
            raise EOFError("the other end of the pipe is gone")
        data += more
    return data


class Pipes:
    """A transport over two pipes."""

    def __init__(self, source: int, sink: int) -> None:
        self._source, self._sink = source, sink

    def swap(self, outbox: Outbox) -> Inbox:
        write(self._sink, packed(outbox))
        return unpacked(msgspec.msgpack.decode(read(self._source), type=Post))


def live(source: int, sink: int) -> Report:
    birth = msgspec.msgpack.decode(read(source), type=Birth)
    transport = Pipes(source, sink)
    if birth.device < 0:
        endpoint = Endpoint(None)
        steps = birth.iterations
        coordinator = mcmc_coordinator(np.arange(birth.total), PublicRandomness(birth.seed), steps)
        endpoint.drive(coordinator if steps else idle_program(), transport)
        return Report([], 0, 0, 0, 0, 0, 0, 0.0, topics(endpoint, birth.total))
    shard = Shard(
        np.array([birth.device]),
        birth.total,
        np.array([0, len(birth.neighbours)]),
        np.array(birth.neighbours, np.int64),
        PrivateRandomness(np.array([birth.secret], np.uint32)),
        PublicRandomness(birth.seed),
    )
    endpoint = Endpoint(shard, ideal=IDEAL_TOPICS)
    comparer = IdealComparer(shard, endpoint)
    program = mcmc(shard, comparer, birth.iterations) if birth.iterations else optimal(shard)
    keep = endpoint.drive(program, transport)
    ledger = add_up([endpoint.ledger], birth.total)  # of one device: its own counts
    return Report(
        shard.neighbours[keep].tolist(),
        int(ledger.messages_sent.sum()),
        int(ledger.messages_received.sum()),
        int(ledger.bytes_sent.sum()),
        int(ledger.bytes_received.sum()),
        int(ledger.device_rounds.sum()),
        ledger.rounds,
        float(ledger.device_comparison_bits.sum()),
        topics(endpoint, birth.total),
    )


def topics(endpoint: Endpoint, total: int) -> dict[str, tuple[int, int]]:
    """By topic: messages and bytes that arrived here."""
    flows = endpoint.ledger.flows()
    return {
        name: (int(np.sum(of.get("received", 0))), int(np.sum(of.get("bytes_received", 0))))
        for name, of in flows.items()
    }


def nursery(control: socket.socket) -> None:
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for a child that ended
    while True:
        _, pipes, _, _ = socket.recv_fds(control, 1, 256)
        if not pipes:
            return
        for place in range(0, len(pipes), 2):
            if os.fork() == 0:
                control.close()
                source, sink = pipes[place], pipes[place + 1]
                for pipe in pipes:
                    if pipe not in (source, sink):
                        os.close(pipe)
                one_life(source, sink)
        for pipe in pipes:
            os.close(pipe)
        control.send(b".")


def one_life(source: int, sink: int) -> None:
    """Never returns: the process ends here, whatever happens."""
    try:
        frame: Report | Failure = live(source, sink)
    except Exception as error:
        frame = Failure(f"{type(error).__name__}: {error}")
    try:
        write(sink, msgspec.msgpack.encode(frame))
    finally:
        os._exit(0)


if __name__ == "__main__":
    nursery(socket.socket(fileno=int(sys.argv[1])))
