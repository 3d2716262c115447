"""A device after the training, started again: it answers, and has no other part in the run.

The coordinator may be gone by then, and so is the device's secret of the run: a question needs its
two ends and the broker. As in `device_party`, no clock is read and nothing is sent here.
"""

from collections.abc import Callable

from lumos.deploy.answered_pairs import AnsweredPairs
from lumos.deploy.frames import Alive, Data, Frame, RunState
from lumos.deploy.mailbox import Mailbox
from lumos.deploy.pair_questions import QUESTIONS, PairQuestions
from lumos.deploy.training_job import TrainingJob
from lumos.device.shard import COORDINATOR


class AnsweringParty:
    """One device whose training is over.

    Args:
        device: its id.
        job: with the result of the training, where it answers about pairs.
        pairs: what it has answered.
        boot: random bytes of this start.
        deadline: seconds after which a question to another device is given up.
        log: called with a line, without anything private, where a message was dropped.
    """

    finished = True

    def __init__(
        self,
        device: int,
        job: TrainingJob,
        pairs: AnsweredPairs,
        boot: bytes,
        deadline: float,
        log: Callable[[str], None],
    ) -> None:
        self.device, self.job, self.phase = device, job, job.last + 1
        self.out: set[int] = set(job.absent)
        self._mailbox = Mailbox(boot, self.phase)
        self.questions = PairQuestions(device, job, self._mailbox, self, deadline, log, pairs)
        for absent in self.out:
            self._mailbox.leave_out(absent)

    def receive(self, sender: int, frames: list[Frame], now: float) -> None:
        """Take what has arrived from another party."""
        for frame in frames:
            if self._mailbox.receive(sender, frame, now):
                if isinstance(frame, Data) and frame.key.phase == QUESTIONS:
                    self.questions.notice(sender, frame, now)
            elif sender == COORDINATOR and isinstance(frame, RunState):
                self._mailbox.tell(COORDINATOR, Alive(self.job.left, 0))

    def advance(self, now: float) -> None:
        """Go on with all questions as far as what has arrived allows."""
        self.questions.advance(now)

    def due(self, now: float) -> list[tuple[int, list[Frame]]]:
        """What is to be sent now, by receiver."""
        return self._mailbox.due(now)

    def next_due(self) -> float:
        """When `due` has something to send, if nothing arrives."""
        return self._mailbox.next_due()
