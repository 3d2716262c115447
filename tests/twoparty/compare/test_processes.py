"""Two operating-system processes that share nothing but a pipe."""

import subprocess
import sys

from lumos.twoparty.comparison import Kind, Receiver, Sender, Spec

SPECS = [(4, "three_way"), (8, "lt"), (8, "le"), (12, "lt"), (16, "three_way"), (32, "le")]

CHILD = """
import sys
from lumos.twoparty.comparison import Receiver, Spec

receiver = Receiver(me=8, peer=3)
for batch in eval(sys.argv[1]):
    receiver.begin([(Spec(bits, kind), y) for bits, kind, y in batch])
    if receiver.number:
        message = receiver.step()
        sys.stdout.buffer.write(len(message).to_bytes(4, "big") + message)
        sys.stdout.buffer.flush()
    while not receiver.finished:
        length = int.from_bytes(sys.stdin.buffer.read(4), "big")
        message = receiver.step(sys.stdin.buffer.read(length))
        if message is not None:
            sys.stdout.buffer.write(len(message).to_bytes(4, "big") + message)
            sys.stdout.buffer.flush()
    print(receiver.results, file=sys.stderr)
"""


def test_a_session_between_two_processes():
    xs, ys = [7, 200, 31, 4000, 60000, 2**32 - 1], [7, 201, 30, 4000, 1, 2**32 - 1]
    asked = [(bits, kind, y) for (bits, kind), y in zip(SPECS, ys, strict=True)]
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD, repr([asked, asked[:3]])],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    sender = Sender(me=3, peer=8)
    held = [(Spec(bits, Kind(kind)), x) for (bits, kind), x in zip(SPECS, xs, strict=True)]
    results = []
    for batch in (held, held[:3]):
        sender.begin(batch)
        message = None if sender.number else sender.step()
        while True:
            if message is not None:
                child.stdin.write(len(message).to_bytes(4, "big") + message)
                child.stdin.flush()
            if sender.finished:
                break
            length = int.from_bytes(child.stdout.read(4), "big")
            message = sender.step(child.stdout.read(length))
        results.append(sender.results)
    child.stdin.close()
    told = child.stderr.read().decode()
    child.stdout.close()
    child.stderr.close()
    assert child.wait(timeout=120) == 0
    assert results == [[0, 1, 0, 0, 1, 1], [0, 1, 0]]
    assert told.split("\n")[:2] == [str(results[0]), str(results[1])]
    assert not isinstance(sender, Receiver)  # type: ignore[unreachable]
