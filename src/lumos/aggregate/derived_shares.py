"""Shares that nobody sends: each follows from the key of a pair, and secrets follow from shares.

Mask neighbours share a key for every sum (`lumos.aggregate.pair_keys`), so u and its holder in slot
j both know a value a_j, uniform for everybody else. Over the holders that are *present*, in the
order of their slots:

* a_1 … a_t are the shares of the first t of them; they determine the polynomial, and so the secret;
* the share of a later one is a_j + c_j, where u publishes the *correction* c_j = P(j) - a_j.

A holder gives out a_j; whoever has the corrections adds c_j.

*Why that is Shamir's sharing.* The polynomial is uniform, since a_1 … a_t are. A correction of
which nobody knows a_j is uniform whatever the polynomial, as a_j is independent of it: a one-time
pad. One of which a_j is known tells the share P(j), as its owner's answer would in Shamir's scheme.
So whoever knows m values a_j knows m shares and nothing else; with m < t the secret is uniform.
Values are made from 32 bits for each element and not drawn from GF(p): a secret is guessed at most
e^(2^-15 · 8 k) ≤ 1.3 times as easily.

*Only those who are present hold a share.* The value of a holder that u did not count among the
present is tied to nothing, whatever the coordinator tells that holder.
"""

import numpy as np

from lumos.aggregate import shamir
from lumos.typing import Flags, Ints


def holder_order(present: Flags) -> Ints:
    """[devices, k] the slots of each device: those that are present first, by number."""
    return np.argsort(~present, axis=1, kind="stable")


def secrets_of(
    values: shamir.Elements, present: Flags, threshold: int
) -> tuple[shamir.Elements, shamir.Elements]:
    """The secrets, and what is published for them.

    Args:
        values: [devices, k, limbs] what each device shares with its holders, by slot.
        present: [devices, k] the holders; at least `threshold` of each device.
        threshold: t.

    Returns:
        [devices, limbs] the secrets, and [devices, k - t, limbs] corrections of the (t + 1)st and
        later holders that are present; zero behind the last of them.
    """
    order = holder_order(present)
    ordered = np.take_along_axis(values, order[:, :, None], axis=1)
    wanted = np.hstack([np.zeros((len(order), 1), np.int64), order[:, threshold:] + 1])
    found = shamir.interpolate(order[:, :threshold] + 1, ordered[:, :threshold], wanted)
    corrections = _plus(found[:, 1:], -ordered[:, threshold:].astype(np.int64))
    behind = np.arange(threshold, order.shape[1]) >= present.sum(axis=1)[:, None]
    corrections[behind] = 0
    return found[:, 0], corrections


def reconstruct(
    values: shamir.Elements,
    corrections: shamir.Elements,
    present: Flags,
    answering: Flags,
    threshold: int,
) -> shamir.Elements:
    """[devices, limbs] the secrets, from the values of the first t holders that answered.

    Args:
        values: [devices, k, limbs] what holders gave out, by the slot of the device.
        corrections: [devices, k - t, limbs] as published.
        present: [devices, k] the holders when the secret was made.
        answering: [devices, k] who of them answered, at least t.
        threshold: t.
    """
    order = holder_order(present)
    shares = np.take_along_axis(values, order[:, :, None], axis=1)
    shares[:, threshold:] = _plus(shares[:, threshold:], corrections.astype(np.int64))
    # Positions in that order, those that answered first.
    answered = np.take_along_axis(answering & present, order, axis=1)
    first = np.argsort(~answered, axis=1, kind="stable")[:, :threshold]
    points = np.take_along_axis(order, first, axis=1) + 1
    return shamir.reconstruct(points, np.take_along_axis(shares, first[:, :, None], axis=1))


def _plus(elements: shamir.Elements, others: Ints) -> shamir.Elements:
    summed: Ints = (elements + others) % shamir.PRIME
    return summed.astype(np.uint16)
