"""`lumos budget`: how much signal a release keeps, computed before any run."""

import math
from typing import Any

from rich.table import Table

from lumos.cli.common import Common, console, print_json
from lumos.encode.mechanisms import COIN, Mechanism, make_mechanism
from lumos.errors import UsageError

COMMON = Common()


def budget(
    *,
    epsilon: float = 2.0,
    classes: int = 4,
    degree: int = 10,
    mechanism: str = "auto",
    common: Common = COMMON,
) -> None:
    """Print how much of the signal one released symbol per device keeps.

    Parameters
    ----------
    epsilon
        ε of the one release of a device.
    classes
        k, the number of symbols.
    degree
        Neighbours whose symbols a device receives.
    mechanism
        auto, krr (randomized response), digits (the same on one digit of the symbol's number), oue
        (unary encoding), multibit (LPGNN's), or a registered one.
    """
    if degree < 1:
        raise UsageError(f"`degree` must be 1 or more, got {degree}")
    release = make_mechanism(classes, epsilon, mechanism)
    result = kept(release, degree)
    if common.json:
        print_json(result)
    else:
        show(release, result)


def kept(mechanism: Mechanism, degree: int) -> dict[str, Any]:
    """What a release keeps, as numbers.

    `clean_neighbours` compares information: bits of all symbols received over the bits of one.
    """
    bits = mechanism.information()
    return {
        "epsilon": mechanism.epsilon,
        "classes": mechanism.size,
        "degree": degree,
        "mechanism": mechanism.name,
        **mechanism.parameters(),
        "bytes": mechanism.width,
        "says_the_truth": mechanism.truth / COIN,
        "says_a_certain_other": mechanism.other / COIN,
        "bits_per_symbol": bits,
        "share_error": math.sqrt(mechanism.variance() / degree),
        "clean_neighbours": degree * bits / math.log2(mechanism.size),
    }


def show(mechanism: Mechanism, result: dict[str, Any]) -> None:
    """The result for people."""
    true, other = mechanism.values
    parameters = ", ".join(f"{name} {value}" for name, value in mechanism.parameters().items())
    many = "1 byte" if mechanism.width == 1 else f"{mechanism.width:,} bytes"
    table = Table(show_header=False, box=None)
    table.add_row(
        "mechanism",
        f"{mechanism.name}{parameters and f' ({parameters})'}, {many} to each neighbour",
    )
    table.add_row(
        "releases",
        f"{true} with probability {result['says_the_truth']:.4f}, "
        f"{other} with {result['says_a_certain_other']:.4f}",
    )
    table.add_row(
        "information",
        f"{result['bits_per_symbol']:.4f} of {math.log2(mechanism.size):.4f} bits of a symbol",
    )
    table.add_row(
        "standard error",
        f"±{result['share_error']:.3f} of the share of one value among {result['degree']} "
        "neighbours",
    )
    table.add_row(
        "worth",
        f"{result['degree']} neighbours under noise carry as much information as "
        f"{result['clean_neighbours']:.2f} without noise",
    )
    console().print(table)
