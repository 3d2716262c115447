"""Sizes of files of evidence, and the time to check a proof, at the sizes of real federations.

    python benchmarks/evidence_files.py

The contents are made up: random bytes of the right sizes, signed as in a simulation. The time is
that of the processor, with the public matrix and the verification of a well-formed proof; all other
kinds but `masks` and `commitment`, which need the matrix too, take milliseconds.
"""

import secrets
import time

import numpy as np

from lumos.crypto import shortness
from lumos.secagg import AggregateSettings, masks
from lumos.secagg.evidence import (
    AnyEvidence,
    Attempt,
    DifferingPledges,
    EvidenceFile,
    InvalidProof,
    OtherMasks,
    Signed,
    SumForm,
    WrongAnswer,
    WrongCommitment,
    WrongShares,
)
from lumos.secagg.parameters import FixedPoint, mask_parameters
from lumos.secagg.signing import SIGNATURE

SIZES = ((60, 576 * 4), (2_000, 1_433 * 6), (22_470, 4_714 * 4), (22_470, 1 << 20))
"""Devices, and numbers of a vector."""
BOUND = 1 << 36


def cases(attempt: Attempt) -> list[AnyEvidence]:
    """Return a piece of evidence of each kind."""
    form, fixed = attempt.form, FixedPoint(0.0, 0, attempt.form.bits // 8, clip=False)
    k, device, draw = form.mask_neighbours, 0, secrets.token_bytes
    pledge, vector = draw(masks.PLEDGE_BYTES * k), np.zeros(form.width * fixed.wire, np.uint8)
    challenge, published = draw(64), draw(16 + 16 * (k - form.threshold))
    [statement] = attempt.statements({device: vector.tobytes()}, challenge)
    zeros = [0] * statement.rows
    proof = shortness.prove(statement, shortness.Witness(zeros, zeros, 1, zeros, 1), draw)
    holders = np.ones(k, np.bool_)
    content = pledge, holders, vector.tobytes(), published, challenge, proof
    record = Signed.of(*content, Signed.of(*content).sign(attempt, device))
    theirs = [
        (slot, pledge, attempt.sign(int(other), b"pledge", pledge))
        for slot, other in enumerate(attempt.neighbours(device)[: form.frameable + 1].tolist())
    ]
    own = attempt.sign(device, b"pledge", pledge)
    given, shown = draw(16 * k), (vector.tobytes(), proof)
    return [
        DifferingPledges(device, pledge, own, theirs),
        InvalidProof(device, record, *shown),
        OtherMasks(device, record, *shown, pledge, given),
        WrongCommitment(device, record, draw(16)),
        WrongShares(device, record, pledge, given, bytes(-(-k // 8))),
        WrongAnswer(device, record, pledge, "share", given, draw(SIGNATURE)),
    ]


def main() -> None:
    """Print a table."""
    print("| devices | numbers | kind | kB | seconds |\n|---|---|---|---|---|")
    for total, width in SIZES:
        settings = AggregateSettings(proofs=True)
        found, fixed = mask_parameters(settings, total), FixedPoint.of(settings, total)
        form = SumForm(
            devices=total,
            mask_neighbours=found.neighbours,
            threshold=found.threshold,
            bits=8 * fixed.wire,
            width=width,
            bound=BOUND,
            seed=secrets.token_bytes(32),
        )
        attempt = Attempt(form=form, number=0, context=bytes(32))
        for case in cases(attempt):
            content = EvidenceFile.of(case, attempt, bytes(16)).packed()
            begun = time.process_time()
            EvidenceFile.read(content).proves()
            seconds = time.process_time() - begun
            kind, size = type(case).__struct_config__.tag, len(content) / 1000
            shown = f"{seconds:.2f}" if kind == "proof" else ""
            print(f"| {total:,} | {width:,} | `{kind}` | {size:,.1f} | {shown} |")


if __name__ == "__main__":
    main()
