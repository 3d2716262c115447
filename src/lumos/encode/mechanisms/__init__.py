"""One symbol of k under ε-LDP: a registry with one file per mechanism.

    krr       randomized response: the symbol itself, or any other one
    digits    randomized response on one digit of the symbol's number, at a random place
    oue       optimised unary encoding: a bit for every symbol
    multibit  LPGNN's: a bit of some coordinates of the one-hot symbol, for comparison

`make_mechanism` makes one by name, or chooses. A mechanism of your own is a subclass of `Mechanism`
and one line, `MECHANISMS.register("mine", Mine)`; it can then be named wherever the others can.
"""

from lumos.encode.mechanisms.mechanism import COIN, Mechanism
from lumos.errors import UsageError, one_of
from lumos.registry import Registry

__all__ = ["AUTO", "COIN", "MECHANISMS", "Mechanism", "check_name", "make_mechanism"]

MECHANISMS: Registry[type[Mechanism]] = Registry(
    "mechanism",
    {
        "krr": "lumos.encode.mechanisms.krr:RandomizedResponse",
        "digits": "lumos.encode.mechanisms.digits:Digits",
        "oue": "lumos.encode.mechanisms.oue:UnaryEncoding",
        "multibit": "lumos.encode.mechanisms.multibit:MultiBit",
    },
)
AUTO = "auto"
"""krr, or digits where they keep more bits."""
BETTER = 1.05
"""How many times the bits of krr make `auto` take digits."""
LARGEST = 1 << 16
"""Most symbols: one of them fits two bytes."""


def check_name(name: str) -> None:
    """Raise `UsageError` unless `name` is `auto` or a registered mechanism."""
    one_of("mechanism", name, (AUTO, *MECHANISMS.names()))


def make_mechanism(size: int, epsilon: float, name: str = AUTO) -> Mechanism:
    """The mechanism of this name, or the one that keeps more of the signal.

    Args:
        size: k, the number of symbols.
        epsilon: ε of one release.
        name: a name in `MECHANISMS`, or `auto`: a function of k and ε alone.

    Raises:
        UsageError: there is no such mechanism, or it cannot release one of k symbols with this ε.
    """
    if size < 2:
        raise UsageError(f"a release needs at least 2 symbols, got {size}")
    if size > LARGEST:
        raise UsageError(f"a release has at most {LARGEST:,} symbols, got {size:,}")
    if not 0 < epsilon < float("inf"):
        raise UsageError(f"`epsilon` must be above 0 and finite, got {epsilon}")
    check_name(name)
    made = _best(size, epsilon) if name == AUTO else MECHANISMS[name](size, epsilon)
    if name not in (AUTO, made.name):
        raise UsageError(
            f"the mechanism registered as {name!r} has the name {made.name!r}; use one for both"
        )
    if not made.other < made.truth:
        raise UsageError(
            f"`epsilon={epsilon:g}` for {size:,} symbols is too little for coins of 32 bits"
        )
    return made


def _best(size: int, epsilon: float) -> Mechanism:
    """Of the two that release one value, the one that keeps most bits.

    oue keeps at most 1.17 times as many for ε from 0.5 to 4 and k up to 400, and to learn what k
    bits mean to k classes takes k² numbers of a noisy sum.
    """
    krr, digits = (MECHANISMS[name](size, epsilon) for name in ("krr", "digits"))
    return digits if digits.information() > BETTER * krr.information() else krr
