"""What sums and opinions of a run are charged in a book, and what all runs together may cost.

Sums are Gaussian mechanisms: over all runs their μ² add up, adaptively, whatever (ε, δ) each run
was asked for. So the book keeps μ² of every device for each question of the table of promises. The
limit is `lifetime_update_epsilon`, at the δ of the run that asks. It holds for the whole record of
a device, and for one of its edges, in whose sums both ends are.
"""

import math
from collections.abc import Mapping

from lumos.aggregate.noise import mu_for
from lumos.strict.run_charges import Charge
from lumos.strict.settings import StrictSettings

OPINIONS, SUMS, CALIBRATION = "opinions", "sums", "calibration"
"""Names of the accounts."""
LABEL, FEATURES, RECORD, NORM, EDGE = "label", "features", "record", "norm", "edge"
QUESTIONS = (LABEL, FEATURES, RECORD, NORM, EDGE)
"""Of which μ² is kept: another label, where sums see it; other features; another record; zeros in
place of the vectors; one edge more or less, at one of its ends."""
ACCOUNTS = {OPINIONS: 1, SUMS: len(QUESTIONS), CALIBRATION: 1}
"""How many amounts a charge of each account has."""
ENDS = {EDGE: 2.0}
"""By which factor a change at one end is less than the whole change."""
LIMITED = (RECORD, EDGE)


def opinion_charge(strict: StrictSettings) -> Charge:
    """What a device that sends opinions is charged for all of them, in every run."""
    epsilon, limit = strict.opinions * strict.opinion_epsilon, strict.lifetime_opinion_epsilon
    return Charge(
        name=OPINIONS,
        amounts=(epsilon,),
        limits=(limit,),
        words=f"opinions of ε = {epsilon:g} would exceed their lifetime limit ε = {limit:g}",
        advice="lower their ε, or raise `lifetime_opinion_epsilon`",
    )


def sum_charge(strict: StrictSettings, mu: Mapping[str, float]) -> Charge:
    """What a device is charged for all sums of a run.

    Args:
        mu: by question, of one run; at one end of an edge.
    """
    most, delta = strict.lifetime_update_epsilon, strict.update_delta
    whole = mu_for(most, delta) ** 2 if math.isfinite(most) else math.inf
    limits = {name: whole / ENDS.get(name, 1.0) ** 2 for name in LIMITED}
    return Charge(
        name=SUMS,
        amounts=tuple(mu.get(name, 0.0) ** 2 for name in QUESTIONS),
        limits=tuple(limits.get(name, math.inf) for name in QUESTIONS),
        words=f"sums of ε = {strict.update_epsilon:g} would exceed their lifetime limit "
        f"ε = {most:g} at δ = {delta:g}",
        advice="lower `update_epsilon`, or raise `lifetime_update_epsilon`",
    )
