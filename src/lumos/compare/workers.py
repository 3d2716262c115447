"""Workers that do the curve work of many sessions, in this process or in others.

A party of the protocol lives where it was made and nowhere else. `InProcess` keeps all of them in
this process, as a real device does. `WorkerProcesses` spreads them over one process per core, so
that a simulation uses the whole machine; the two ends of a session are then in different processes.
"""

import os
import subprocess
import sys
from collections.abc import Callable
from selectors import EVENT_READ, DefaultSelector
from typing import Protocol

import msgspec
import numpy as np

from lumos.compare.receiver import Receiver
from lumos.compare.sender import Sender
from lumos.compare.spec import Kind, Spec
from lumos.errors import LumosError, ProtocolError
from lumos.typing import Bytes, Ints

Worked = Callable[[int], None]
"""Told now and then how many more steps are done."""

_CHUNK = 256  # steps between two signs of life


class Steps(msgspec.Struct):
    """One thing to do for many parties.

    Args:
        ends: [parties, 2] own id and peer's id, as int64; the smaller id is the sender.
        bits: of the values; `kind`: lt or three_way, revealed to both.
        values: [parties] own values, as int64: begin a batch with them.
        width: bytes of an answer: step once. Shorter answers are padded with zeros, and who
            answers nothing gives zeros.
        incoming: [parties, …] messages that came, padded to one width; None when there are none.
        lengths: [parties] bytes of each incoming message, as int64.
        results: give what each party learned, as int64.
    """

    def __repr__(self) -> str:
        return f"Steps(parties={len(self.ends) // 16})"  # values are private

    ends: bytes
    bits: int = 0
    kind: str = ""
    values: bytes | None = None
    width: int = 0
    incoming: bytes | None = None
    lengths: bytes | None = None
    results: bool = False


class Answers(msgspec.Struct):
    """What a worker says: steps done since the last word, answers when all are, or what failed."""

    worked: int = 0
    answers: bytes | None = None
    failed: str = ""


class Workers(Protocol):
    """Who keeps the parties and steps them."""

    def run(self, steps: Steps, worked: Worked | None = None) -> Bytes:
        """[parties, width] the answers; [parties, 8] results as int64 if those were asked."""
        ...

    def close(self) -> None:
        """Forget all sessions."""
        ...


class InProcess:
    """All parties in this process."""

    def __init__(self) -> None:
        self._parties: dict[tuple[int, int], Sender | Receiver] = {}

    def run(self, steps: Steps, worked: Worked | None = None) -> Bytes:
        """Serve one party after the other."""
        ends = np.frombuffer(steps.ends, np.int64).reshape(-1, 2).tolist()
        if steps.results:
            learned = [self._parties[me, peer].results[0] for me, peer in ends]
            return np.array(learned, np.int64).view(np.uint8).reshape(len(ends), 8)
        if steps.values is not None:
            spec = Spec(steps.bits, Kind(steps.kind))
            values = np.frombuffer(steps.values, np.int64).tolist()
            for (me, peer), value in zip(ends, values, strict=True):
                self._party(me, peer).begin([(spec, value)])
            return np.empty((len(ends), 0), np.uint8)
        came, width = steps.incoming or b"", steps.width
        stride = len(came) // len(ends)
        lengths = None if steps.lengths is None else np.frombuffer(steps.lengths, np.int64).tolist()
        answers = bytearray(len(ends) * width)
        for row, (me, peer) in enumerate(ends):
            start = row * stride
            incoming = None if lengths is None else came[start : start + lengths[row]]
            answer = self._parties[me, peer].step(incoming)
            if answer is not None:
                answers[row * width : row * width + len(answer)] = answer
            if worked is not None and row % _CHUNK == _CHUNK - 1:
                worked(_CHUNK)
        if worked is not None:
            worked(len(ends) % _CHUNK)
        return np.frombuffer(answers, np.uint8).reshape(len(ends), width)

    def close(self) -> None:
        """Forget all sessions."""
        for party in self._parties.values():
            party.close()
        self._parties.clear()

    def _party(self, me: int, peer: int) -> Sender | Receiver:
        party = self._parties.get((me, peer))
        if party is None:
            party = Sender(me, peer) if me < peer else Receiver(me, peer)
            self._parties[me, peer] = party
        return party


class _Worker:
    """One worker process and our ends of its pipes."""

    def __init__(self) -> None:
        theirs, self.sink = os.pipe()
        self.source, mine = os.pipe()
        # -P: nothing is imported from the current folder, least of all a module named `secrets`.
        command = [sys.executable, "-P", "-c", "from lumos.compare.workers import serve; serve()"]
        self._process = subprocess.Popen(command, stdin=theirs, stdout=mine)
        os.close(theirs)
        os.close(mine)

    def end(self) -> None:
        os.close(self.sink)
        os.close(self.source)
        self._process.terminate()
        self._process.wait()


class WorkerProcesses:
    """Parties spread over `count` worker processes."""

    def __init__(self, count: int) -> None:
        self._workers = [_Worker() for _ in range(count)]

    def run(self, steps: Steps, worked: Worked | None = None) -> Bytes:
        """Give each worker the parties that live with it, and put their answers together."""
        if not self._workers:
            raise ProtocolError("the worker processes of the comparison have ended")
        ends = np.frombuffer(steps.ends, np.int64).reshape(-1, 2)
        # The two ends of a session go to neighbouring workers.
        home = (ends.sum(axis=1) // 2 + (ends[:, 0] < ends[:, 1])) % len(self._workers)
        width = 8 if steps.results else steps.width
        answers = np.empty((len(ends), width), np.uint8)
        busy: dict[int, Ints] = {}
        with DefaultSelector() as selector:
            for number, worker in enumerate(self._workers):
                own = np.flatnonzero(home == number)
                if len(own):
                    _write(worker.sink, msgspec.msgpack.encode(_part(steps, own)))
                    selector.register(worker.source, EVENT_READ)
                    busy[worker.source] = own
            while busy:
                for key, _ in selector.select():
                    said = msgspec.msgpack.decode(_read(key.fd), type=Answers)
                    if said.failed:
                        self.close()
                        raise ProtocolError(said.failed)
                    if worked is not None:
                        worked(said.worked)
                    if said.answers is not None:
                        own = busy.pop(key.fd)
                        part = np.frombuffer(said.answers, np.uint8)
                        answers[own] = part.reshape(len(own), width)
                        selector.unregister(key.fd)
        return answers

    def close(self) -> None:
        """End the workers; their sessions end with them."""
        for worker in self._workers:
            worker.end()
        self._workers = []


def make_pool(count: int | None = None) -> Workers:
    """Workers for a simulation: one process per core, or none beside this one for `count` 1."""
    count = count or cores()
    return InProcess() if count == 1 else WorkerProcesses(count)


def cores() -> int:
    """Cores that this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _part(steps: Steps, rows: Ints) -> Steps:
    def cut(array: bytes | None, dtype: type[np.generic], columns: int) -> bytes | None:
        if array is None:
            return None
        return np.frombuffer(array, dtype).reshape(-1, columns)[rows].tobytes()

    count = len(steps.ends) // 16
    return msgspec.structs.replace(
        steps,
        ends=cut(steps.ends, np.int64, 2),
        values=cut(steps.values, np.int64, 1),
        incoming=cut(steps.incoming, np.uint8, len(steps.incoming or b"") // count),
        lengths=cut(steps.lengths, np.int64, 1),
    )


_GONE = "a worker process of the comparison ended; start the run again"


def _write(pipe: int, data: bytes) -> None:
    frame = memoryview(len(data).to_bytes(8, "little") + data)
    try:
        while frame:
            frame = frame[os.write(pipe, frame) :]
    except BrokenPipeError:
        raise ProtocolError(_GONE) from None


def _read(pipe: int) -> bytes:
    return _exactly(pipe, int.from_bytes(_exactly(pipe, 8), "little"))


def _exactly(pipe: int, size: int) -> bytes:
    data = bytearray()
    while len(data) < size:
        more = os.read(pipe, min(size - len(data), 1 << 20))
        if not more:
            raise ProtocolError(_GONE)
        data += more
    return bytes(data)


def serve() -> None:
    """A worker: take steps from standard input until it ends."""
    source, sink = sys.stdin.fileno(), sys.stdout.fileno()
    parties = InProcess()

    def say(answers: Answers) -> None:
        _write(sink, msgspec.msgpack.encode(answers))

    while True:
        try:
            steps = msgspec.msgpack.decode(_read(source), type=Steps)
        except ProtocolError:
            return
        try:
            answers = parties.run(steps, lambda count: say(Answers(worked=count)))
        except LumosError as error:
            say(Answers(failed=f"{type(error).__name__}: {error}"))
        except Exception as error:  # its text could carry a value: only its type leaves
            say(Answers(failed=f"a worker process of the comparison met {type(error).__name__}"))
        else:
            say(Answers(answers=answers.tobytes()))
