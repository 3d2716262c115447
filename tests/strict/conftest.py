"""Short strict runs, for tests that only need their course."""

from collections.abc import Iterator

import pytest


@pytest.fixture(scope="module")
def short() -> Iterator[dict[str, int]]:
    """Evidence weights is trained for 4 epochs before trees, for runs of which only the course
    matters.

    The settings are those of `classify`: 1 epoch of counts, 2 of the encoder, 1 of its scale, 3 of
    matrices (with two propagated labels), 1 of evidence weights.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("lumos.strict.classify.stages.EVIDENCE_WEIGHTS_EPOCHS", 4)
        yield {"encoder_epochs": 2, "epochs": 8}
