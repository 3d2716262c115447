"""Two operating-system processes that share nothing but a pipe."""

import subprocess
import sys

from lumos.twoparty.score import LevelSpec, ScoreSender, Shifted

CHILD = """
import sys
from lumos.twoparty.score import LevelSpec, ScoreReceiver, Shifted

receiver = ScoreReceiver(me=8, peer=3)
spec = LevelSpec(width=3, bits=4, ring_bits=9, thresholds=(-10, 0, 10))
for batch in ([(2, 1, 0), (-7, 5, 5)], [Shifted((1, 1, 1), 3)]):
    receiver.begin([(spec, v) for v in batch])
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
    child = subprocess.Popen(
        [sys.executable, "-c", CHILD],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    assert child.stdin is not None
    assert child.stdout is not None
    assert child.stderr is not None
    spec = LevelSpec(width=3, bits=4, ring_bits=9, thresholds=(-10, 0, 10))
    sender = ScoreSender(me=3, peer=8)
    results = []
    # Products 14 - 4 = 10, -28 - 10 = -38 and -9, level 1: S shifts it by two, and R by three.
    for batch in ([(7, -4, 0), (4, -2, 0)], [Shifted((-3, -3, -3), 2)]):
        sender.begin([(spec, s) for s in batch])
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
    assert results == [[3, 0], [0]]
    assert told.split("\n")[:2] == ["[3, 0]", "[3]"]
