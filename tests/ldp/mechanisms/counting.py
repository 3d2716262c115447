"""Exact checks of probabilities that are whole numbers of randomness."""

from decimal import Decimal, localcontext


def at_most(count: int, other: int, epsilon: float) -> bool:
    """Whether count ≤ e^ε · other, with 60 digits."""
    with localcontext() as context:
        context.prec = 60
        return Decimal(count) <= Decimal(epsilon).exp() * Decimal(other)
