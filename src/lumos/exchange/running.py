"""A running program and its endpoint, as every carrier in a process advances it."""

from typing import Generic, TypeVar

from lumos.exchange.batch import Inbox, Outbox
from lumos.exchange.endpoint import Endpoint, Program

Result = TypeVar("Result")


class RunningProgram(Generic[Result]):
    """A running program, its endpoint, and the outbox it waits with."""

    def __init__(self, program: Program[Result], endpoint: Endpoint) -> None:
        self._program = program
        self._endpoint = endpoint
        self.finished = False
        self.result: Result
        self.outbox: Outbox
        self._advance(None)

    def take(self) -> Outbox:
        """The outbox, to be carried; it is not kept here while the answer is worked on."""
        outbox, self.outbox = self.outbox, self.outbox.topic.nothing()
        return outbox

    def resume(self, inbox: Inbox) -> None:
        """Deliver an inbox and run until the next outbox."""
        self._advance(self._endpoint.check_incoming(self.outbox.topic, inbox))

    def _advance(self, inbox: Inbox | None) -> None:
        try:
            outbox = next(self._program) if inbox is None else self._program.send(inbox)
        except StopIteration as stop:
            self.finished = True
            self.result = stop.value
        else:
            self.outbox = self._endpoint.check_outgoing(outbox)
