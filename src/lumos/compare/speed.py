"""How fast this machine compares: a short try before a long run."""

import time

from lumos.compare.receiver import Receiver
from lumos.compare.sender import Sender
from lumos.compare.spec import Spec
from lumos.compare.workers import cores

_TRIES = 12


def comparisons_per_second(workers: int | None = None) -> float:
    """Comparisons of 8 bits in fresh sessions, both ends' work, times the number of workers."""
    spec = Spec(8)
    start = time.perf_counter()
    for _ in range(_TRIES):
        sender, receiver = Sender(0, 1), Receiver(1, 0)
        sender.begin([(spec, 3)])
        receiver.begin([(spec, 5)])
        message = sender.step()
        while message is not None:
            sender_turn = receiver.step(message)
            message = None if sender_turn is None else sender.step(sender_turn)
    rate = _TRIES / (time.perf_counter() - start)
    return rate * (workers or cores())
