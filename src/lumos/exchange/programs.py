"""Loops that advance a program: to its end at once, or with its rounds changed on their way."""

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, TypeVar

from lumos.exchange.batch import Inbox, Outbox

if TYPE_CHECKING:
    from lumos.exchange.endpoint import Program

Result = TypeVar("Result")


def run_alone(program: "Program[Result]", answer: Callable[[Outbox], Inbox]) -> Result:
    """Run a program to its end; every round is answered at once."""
    inbox: Inbox | None = None
    while True:
        try:
            outbox = next(program) if inbox is None else program.send(inbox)
        except StopIteration as stop:
            result: Result = stop.value
            return result
        inbox = answer(outbox)


def played(
    program: "Program[Result]",
    play: "Callable[[Outbox], Program[Inbox]]",
    within: Callable[[], AbstractContextManager[object]] = nullcontext,
) -> "Program[Result]":
    """Return a program whose rounds another one plays.

    Args:
        play: from an outbox to a program of any rounds that returns the inbox.
        within: makes the context in which the program runs from one round to the next.
    """
    inbox: Inbox | None = None
    while True:
        with within():
            try:
                outbox = next(program) if inbox is None else program.send(inbox)
            except StopIteration as stop:
                result: Result = stop.value
                return result
        inbox = yield from play(outbox)


def unchanged(outbox: Outbox) -> "Program[Inbox]":
    """Play a round as it is."""
    return (yield outbox)


def changed(program: "Program[Result]", change: Callable[[Outbox], Outbox]) -> "Program[Result]":
    """Return the same program with other outboxes."""
    return played(program, lambda outbox: unchanged(change(outbox)))
