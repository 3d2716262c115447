"""What a device meant, from the opinion that it sent: the ε that frequencies certify.

All neighbours of a device together know everything that it received, because they sent it. With the
opened sums they compute its evidence, and the opinion that it must have had before it was
randomized. How often each opinion was sent then shows the ε of the mechanism as it was used. Only
devices without a tie in their evidence are counted: of others nobody knows what they meant.
"""

from collections.abc import Iterator

import numpy as np

from lumos.audit.attacks import Attack
from lumos.audit.attacks.symbol_ratio import certified, most_right, public_schedule
from lumos.audit.audit_row import AuditRow
from lumos.audit.estimates import Proportion
from lumos.audit.scene import Recorded, Scene
from lumos.audit.views import opened_sums, told
from lumos.encode.number_bytes import one_hot
from lumos.strict.classify.evidence import MessageCounts
from lumos.strict.classify.stages import SYMBOLS, ClassifySchedule
from lumos.strict.settings import settings_of
from lumos.typing import Doubles, Ints

ADVERSARY = "all neighbours of a device"


def run(scene: Scene) -> Iterator[AuditRow]:
    """Every opinion of one recorded run."""
    recorded = scene.recorded("classify")
    schedule = public_schedule(recorded)
    mechanism, epsilon = schedule.opinion_mechanism, schedule.strict.opinion_epsilon
    evidence = evidence_of(recorded, schedule)
    for number, total in enumerate(evidence):
        meant = intended(total)
        bodies, senders = told(recorded.tape, "strict/opinion", recorded.graph.devices, number)
        here = np.flatnonzero(senders & (meant >= 0))
        if not len(here):
            continue
        named = mechanism.read(bodies[here]) > 0
        claim = f"opinion_epsilon = {epsilon:g}"
        if named.shape[1] == schedule.classes and (named.sum(axis=1) == 1).all():
            counts = np.bincount(meant[here], minlength=schedule.classes)
            right = int((named.argmax(axis=1) == meant[here]).sum())
            yield AuditRow(
                attack=ATTACK.name,
                adversary="one neighbour",
                about=f"opinion {number + 1} before it was randomized, from the one sent",
                measure="accuracy",
                estimate=Proportion(right, len(here)),
                chance=float(counts.max() / counts.sum()),
                chance_is="the most frequent opinion",
                bound=most_right(epsilon, schedule.classes, counts / counts.sum()),
                bound_is=claim,
                knows_mechanism=True,
            )
        yield AuditRow(
            attack=ATTACK.name,
            adversary=ADVERSARY,
            about=f"ε that the frequencies of opinion {number + 1} certify, given what was meant",
            measure="ε",
            estimate=certified(meant[here], named),
            bound=epsilon,
            bound_is=claim,
            knows_mechanism=True,
        )


def evidence_of(recorded: Recorded, schedule: ClassifySchedule) -> list[Doubles]:
    """[devices, k] what each opinion was made of, from messages and opened sums alone."""
    graph, tape = recorded.graph, recorded.tape
    form, mechanism = schedule.symbol_form, schedule.opinion_mechanism
    opinions = settings_of(recorded.config).opinions
    sums = opened_sums(recorded)
    after = [stage.name for stage, _ in schedule.sums[::-1]].index(SYMBOLS)
    first = len(sums) - 1 - after
    evidence = np.zeros((graph.devices, schedule.classes))
    found = []
    for kind in range(opinions):
        if kind == 0:
            (batch,) = tape.messages("strict/symbol")
            support = one_hot(batch.body[:, : form.width], form.alphabet)
        else:
            batch = tape.messages("strict/opinion")[kind - 1]
            support = mechanism.read(batch.body[:, : mechanism.width])
        counts = MessageCounts(support, batch.receiver, graph.devices)
        evidence = evidence + counts.evidence(sums[first + kind], schedule.label_form)
        found.append(evidence)
    return found


def intended(evidence: Doubles) -> Ints:
    """[devices] the class that the evidence points to; -1 where several have the most."""
    top = np.sort(evidence, axis=1)
    return np.where(top[:, -1] - top[:, -2] > 1e-9, evidence.argmax(axis=1), -1)


ATTACK = Attack(
    name="opinions",
    title="what devices meant, from the opinions that they sent",
    run=run,
    profiles=frozenset({"strict"}),
    tasks=frozenset({"classify"}),
)
