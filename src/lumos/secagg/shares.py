"""Secret shares: Shamir's scheme, shares that follow from pair keys, and the vault of a holder.

Shamir's secret sharing over GF(65521), for many secrets at once.

A secret is the value at 0 of a polynomial of degree t - 1 that is determined by its values at t
other points; the share at point x ≠ 0 is its value there.

*Any t shares give the secret*: t values determine a polynomial of degree t - 1 (Lagrange).
*Any t - 1 shares reveal nothing*: for t - 1 points and any secret s' there is exactly one
polynomial of degree t - 1 with those values and s' at 0. So where t values are uniform, the secret
is uniform given any t - 1 shares: secrecy is perfect, not computational.

p = 65521 is the largest prime below 2^16: elements travel in two bytes, and since
t · (p - 1)^2 < 2^53 for t < 2^21, products of matrices of elements are exact in float64, where
they are fast. A secret of 8 elements has 8 · log2 p > 127.99 bits.
"""

from functools import cache

import numpy as np
import numpy.typing as npt

from lumos.crypto.entropy import InMemoryOnly
from lumos.errors import BothSecrets, WrongSender
from lumos.typing import Flags, Ints, Words

PRIME = 65521
LIMBS = 8
"""Field elements of one secret."""

Elements = npt.NDArray[np.uint16]


def elements_of(words: Words) -> Elements:
    """Field elements from uniform words of 32 bits: uniform but for a factor 1 ± 2^-16."""
    return (words % np.uint32(PRIME)).astype(np.uint16)


def interpolate(points: Ints, values: Elements, wanted: Ints, prime: int = PRIME) -> Elements:
    """The values of polynomials at further points.

    Args:
        points: [secrets, t] distinct points.
        values: [secrets, t, elements] the values there.
        wanted: [secrets, wanted] where to evaluate, none of `points`.

    Returns:
        [secrets, wanted, elements].
    """
    secrets, t, elements = values.shape
    if secrets and (points == points[0]).all() and (wanted == wanted[0]).all():
        # The same points for all: one product of matrices.
        columns = values.transpose(1, 0, 2).reshape(t, secrets * elements)
        found = _weights(points[:1], wanted[:1], prime)[0] @ columns.astype(np.float64)
        found = found.reshape(-1, secrets, elements).transpose(1, 0, 2)
    else:
        found = _weights(points, wanted, prime) @ values.astype(np.float64)
    result: Elements = (found % prime).astype(np.uint16)
    return result


def reconstruct(points: Ints, shares: Elements, prime: int = PRIME) -> Elements:
    """The secrets behind shares at distinct points.

    Args:
        points: [secrets, t] where each share was taken.
        shares: [secrets, t, elements].
    """
    return interpolate(points, shares, np.zeros((len(points), 1), np.int64), prime)[:, 0]


def _weights(points: Ints, wanted: Ints, prime: int) -> npt.NDArray[np.float64]:
    """[secrets, wanted, t] λ_i(x) = Π_{j≠i} (x - x_j) / (x_i - x_j) of each point."""
    above = np.ones(wanted.shape, np.int64)  # Π_j (x - x_j)
    below = np.ones_like(points)
    for j in range(points.shape[1]):
        x = points[:, j, None]
        above = above * (wanted - x) % prime
        apart = points - x
        apart[:, j] = 1
        below = below * apart % prime
    inverses = _inverses(prime)
    weights: Ints = above[:, :, None] * inverses[below][:, None, :] % prime
    weights = weights * inverses[(wanted[:, :, None] - points[:, None, :]) % prime] % prime
    exact: npt.NDArray[np.float64] = weights.astype(np.float64)
    return exact


@cache
def _inverses(prime: int) -> Ints:
    """[prime] 1/x of each x; 0 of 0."""
    values = np.arange(prime)
    result, power, exponent = np.ones_like(values), values, prime - 2  # x^(p-2), by squaring
    while exponent:
        if exponent & 1:
            result = result * power % prime
        power = power * power % prime
        exponent >>= 1
    return result


# Shares that nobody sends: each follows from the key of a pair, and secrets follow from shares.
#
# Mask neighbours share a key for every sum (`lumos.secagg.masks`), so u and its holder in
# slot j both know a value a_j, uniform for everybody else. Over the holders that are *present*, in
# the order of their slots:
#
# * a_1 … a_t are the shares of the first t of them; they determine the polynomial, and so the
#   secret;
# * the share of a later one is a_j + c_j, where u publishes the *correction* c_j = P(j) - a_j.
#
# A holder gives out a_j; whoever has the corrections adds c_j.
#
# *Why that is Shamir's sharing.* The polynomial is uniform, since a_1 … a_t are. A correction of
# which nobody knows a_j is uniform whatever the polynomial, as a_j is independent of it: a one-time
# pad. One of which a_j is known gives the share P(j), as its owner's answer would in Shamir's
# scheme. So whoever knows m values a_j knows m shares and nothing else; with m < t the secret is
# uniform. Values are made from 32 bits for each element and not drawn from GF(p): a secret is
# guessed at most e^(2^-15 · 8 k) ≤ 1.3 times as easily.
#
# *Only those who are present hold a share.* The value of a holder that u did not count among the
# present is tied to nothing, whatever the coordinator sends that holder.


def holder_order(present: Flags) -> Ints:
    """[devices, k] the slots of each device: those that are present first, by number."""
    return np.argsort(~present, axis=1, kind="stable")


def secrets_of(values: Elements, present: Flags, threshold: int) -> tuple[Elements, Elements]:
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
    found = interpolate(order[:, :threshold] + 1, ordered[:, :threshold], wanted)
    corrections = _plus(found[:, 1:], -ordered[:, threshold:].astype(np.int64))
    behind = np.arange(threshold, order.shape[1]) >= present.sum(axis=1)[:, None]
    corrections[behind] = 0
    return found[:, 0], corrections


def reconstruct_secret(
    values: Elements,
    corrections: Elements,
    present: Flags,
    answering: Flags,
    threshold: int,
) -> Elements:
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
    return reconstruct(points, np.take_along_axis(shares, first[:, :, None], axis=1))


def _plus(elements: Elements, others: Ints) -> Elements:
    summed: Ints = (elements + others) % PRIME
    return summed.astype(np.uint16)


# Shares held for other devices: of a device's two secrets one is given out, never both.
#
# In a round every device has two secrets, shared among its k neighbours: the *self secret*, whose
# mask is opened when its vector has arrived, and the *pair secret*, which opens its pair masks when
# it is lost. Both together would open its vector. What a holder holds follows from the keys of the
# round (`lumos.secagg.masks`), which exist nowhere else once the round has begun.

SELF, PAIR = 0, 1


class ShareVault(InMemoryOnly):
    """Shares that hosted devices hold for their neighbours in one round.

    Args:
        values: [hosted, k, 2, limbs] of the self secret and of the pair secret; kept, not copied.
    """

    def __init__(self, values: Elements) -> None:
        self._values = values
        self._given = np.zeros(values.shape[:2], np.bool_)
        self._in_round: Flags = np.zeros(values.shape[:2], np.bool_)

    def admit(self, joined: Flags) -> None:
        """[hosted, k] who is in the round: of nobody else anything is given out."""
        self._in_round = joined.copy()

    def give_out(self, rows: Ints, slots: Ints, which: Ints) -> Elements:
        """[requests, limbs] one value each; both are erased here.

        Args:
            rows: [requests] the hosted device that holds the share.
            slots: [requests] the neighbour whose secret it is.
            which: [requests] `SELF` or `PAIR`.
        """
        asked = rows * self._in_round.shape[1] + slots
        if self._given[rows, slots].any() or len(np.unique(asked)) < len(asked):
            raise BothSecrets("a holder was asked again about a device of which it gave a share")
        if not self._in_round[rows, slots].all():
            raise WrongSender("a holder was asked about a device that is not in the round")
        values: Elements = self._values[rows, slots, which]
        self._given[rows, slots] = True
        self._values[rows, slots] = 0
        return values

    def forget(self) -> None:
        """Erase everything: nothing of this round can be given out any more."""
        self._values[:] = 0
        self._in_round[:] = False
