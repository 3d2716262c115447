"""Worker processes: parties spread over the cores, so that a simulation uses the whole machine.

The two ends of a session are in different processes. A worker is a fresh interpreter, not a fork
and not a `multiprocessing` process: it inherits no session and does not import the caller's script.
Requests and replies are bytes (msgspec) on a `multiprocessing` connection, never pickles. A worker
ends when its connection does, and so with the process that started it.
"""

import signal
import subprocess
import sys
from multiprocessing.connection import Connection, Pipe, wait

import msgspec
import numpy as np

from lumos.errors import LumosError, ProtocolError
from lumos.session.workers import InProcess, OnSteps, Steps, Workers, cores
from lumos.typing import Bytes, Ints

# -P: nothing is imported from the current folder, least of all a module named `secrets`.
_COMMAND = ("-P", "-c", "from lumos.session.worker_processes import serve; serve()")
_ENDED = "a worker process ended; start the run again"


class _Reply(msgspec.Struct):
    """A worker's message: progress, then the replies of its parties, or an error."""

    steps: int = 0
    """Steps done since the last message."""
    replies: bytes | None = None
    error: str = ""


class _Worker:
    """One worker process and our end of its connection."""

    def __init__(self) -> None:
        self.connection, theirs = Pipe()
        self.process = subprocess.Popen(
            [sys.executable, *_COMMAND],
            stdin=theirs.fileno(),
            stdout=subprocess.DEVNULL,
            process_group=0,  # the keyboard's interrupt is the parent's, from the first moment on
        )
        theirs.close()

    def send(self, steps: Steps) -> None:
        try:
            self.connection.send_bytes(msgspec.msgpack.encode(steps))
        except OSError:
            raise ProtocolError(_ENDED) from None

    def receive(self) -> _Reply:
        try:
            return msgspec.msgpack.decode(self.connection.recv_bytes(), type=_Reply)
        except (EOFError, OSError):
            raise ProtocolError(_ENDED) from None

    def end(self) -> None:
        self.connection.close()
        self.process.terminate()
        self.process.wait()


class WorkerProcesses:
    """Parties spread over `count` worker processes."""

    def __init__(self, count: int) -> None:
        self._workers = [_Worker() for _ in range(count)]

    def run(self, steps: Steps, on_steps: OnSteps | None = None) -> Bytes:
        """Send each worker the requests to its parties, and gather the replies."""
        if not self._workers:
            raise ProtocolError("the worker processes have ended")
        try:
            return self._run(steps, on_steps)
        except BaseException:
            # Replies that were not read would be taken for those to the next request.
            self.close()
            raise

    def _run(self, steps: Steps, on_steps: OnSteps | None) -> Bytes:
        ends = np.frombuffer(steps.ends, np.int64).reshape(-1, 2)
        home = _homes(ends, len(self._workers))
        width = 8 if steps.results else steps.width
        replies = np.empty((len(ends), width), np.uint8)
        busy: dict[object, tuple[_Worker, Ints]] = {}
        for number, worker in enumerate(self._workers):
            rows = np.flatnonzero(home == number)
            if len(rows):
                worker.send(_part(steps, rows))
                busy[worker.connection] = worker, rows
        while busy:
            for ready in wait([worker.connection for worker, _ in busy.values()]):
                worker, rows = busy[ready]
                reply = worker.receive()
                if reply.error:
                    raise ProtocolError(reply.error)
                if on_steps is not None:
                    on_steps(reply.steps)
                if reply.replies is not None:
                    part = np.frombuffer(reply.replies, np.uint8)
                    replies[rows] = part.reshape(len(rows), width)
                    del busy[ready]
        return replies

    def close(self) -> None:
        """End the workers; their sessions end with them."""
        for worker in self._workers:
            worker.end()
        self._workers = []


def make_pool(count: int | None = None) -> Workers:
    """Workers for a simulation: one process per core, or this process alone for `count` 1."""
    count = count or cores()
    return InProcess() if count == 1 else WorkerProcesses(count)


def _homes(ends: Ints, count: int) -> Ints:
    """[parties] the worker of each: the two ends of a session go to neighbouring workers.

    All senders step at once, and then all receivers. So the sum of the ids is mixed first: pairs
    such as (0, 1), (2, 3), … would else have all their senders in one worker.
    """
    mixed = ends.sum(axis=1) * 0x9E3779B1 >> 16
    homes: Ints = (mixed + (ends[:, 0] < ends[:, 1])) % count
    return homes


def _part(steps: Steps, rows: Ints) -> Steps:
    """The request to the parties at `rows`."""

    count = len(steps.ends) // 16

    def cut(array: bytes | None) -> bytes | None:
        if array is None:
            return None
        width = len(array) // count
        return np.frombuffer(array, np.uint8).reshape(count, width)[rows].tobytes()

    return msgspec.structs.replace(
        steps,
        ends=cut(steps.ends),
        values=cut(steps.values),
        incoming=cut(steps.incoming),
        lengths=cut(steps.lengths),
    )


def serve() -> None:
    """Run a worker: serve the connection on standard input until it ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # an interrupt is the parent's to handle
    connection = Connection(sys.stdin.fileno())
    parties = InProcess()

    def send(reply: _Reply) -> None:
        connection.send_bytes(msgspec.msgpack.encode(reply))

    try:
        while True:
            steps = msgspec.msgpack.decode(connection.recv_bytes(), type=Steps)
            try:
                replies = parties.run(steps, lambda count: send(_Reply(steps=count)))
            except LumosError as error:
                send(_Reply(error=f"{type(error).__name__}: {error}"))
            except OSError:
                raise
            except Exception as error:  # its text could carry a value: only its type leaves
                send(_Reply(error=f"a worker process met {type(error).__name__}"))
            else:
                send(_Reply(replies=replies.tobytes()))
    except (EOFError, OSError):
        return  # the parent closed the connection, or is gone
