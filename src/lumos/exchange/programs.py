"""Programs that are run without a carrier, or whose outboxes are changed on their way."""

from collections.abc import Callable
from typing import TypeVar

from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Program

Result = TypeVar("Result")


def run_alone(program: Program[Result], answer: Callable[[Outbox], Inbox]) -> Result:
    """Run a program to its end; every round is answered at once."""
    inbox: Inbox | None = None
    while True:
        try:
            outbox = next(program) if inbox is None else program.send(inbox)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        inbox = answer(outbox)


def changed(program: Program[Result], change: Callable[[Outbox], Outbox]) -> Program[Result]:
    """The same program with other outboxes."""
    inbox: Inbox | None = None
    while True:
        try:
            outbox = next(program) if inbox is None else program.send(inbox)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        inbox = yield change(outbox)
