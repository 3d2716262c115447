"""`lumos budget`: what a release keeps of the signal, before anything is run."""

import math
from typing import Any

from rich.table import Table

from lumos.cli.common import Common, console, print_json
from lumos.encode.symbols import COIN, Symbols
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
    """Print what one released symbol per device keeps of the signal.

    Parameters
    ----------
    epsilon
        ε of the one release of a device.
    classes
        k, the number of symbols.
    degree
        Neighbours whose symbols a device hears.
    mechanism
        auto, krr (randomized response), digits (the same on one digit of the symbol's number), oue
        (unary encoding) or multibit (LPGNN's).
    """
    if degree < 1:
        raise UsageError(f"--degree must be 1 or more, got {degree}")
    result = kept(epsilon, classes, degree, mechanism)
    if common.json:
        print_json(result)
        return
    table = Table(show_header=False, box=None)
    truth, lie = result["says_the_truth"], result["says_a_certain_other"]
    digits = ""
    if result["mechanism"] == "digits":
        digits = f" ({result['places']} in base {result['base']}, one of them told)"
    many = "1 byte" if result["bytes"] == 1 else f"{result['bytes']:,} bytes"
    table.add_row("mechanism", f"{result['mechanism']}{digits}, {many} to each neighbour")
    what, other = {
        "krr": ("the true symbol", "each other symbol"),
        "digits": ("the true digit", "each other digit"),
    }.get(result["mechanism"], ("the true symbol's bit", "each other bit"))
    table.add_row("says", f"{what} with chance {truth:.4f}, {other} with {lie:.4f}")
    table.add_row(
        "information",
        f"{result['bits_per_symbol']:.4f} of {math.log2(classes):.4f} bits of a symbol",
    )
    table.add_row(
        "share of a digit" if digits else "share of a class",
        f"among {degree} neighbours: known to ±{result['share_error']:.3f} (one standard error)"
        + ("" if digits else "; without noise it would be exact"),
    )
    table.add_row(
        "worth",
        f"{degree} neighbours under noise tell as much as {result['clean_neighbours']:.2f} without",
    )
    console().print(table)


def kept(epsilon: float, classes: int, degree: int, mechanism: str) -> dict[str, Any]:
    """What a release keeps, as numbers.

    `clean_neighbours` compares information: bits of all symbols heard over the bits of one symbol.
    """
    symbols = Symbols.of(classes, epsilon, mechanism)
    bits, digits = symbols.information(), {}
    if symbols.mechanism == "digits":
        digits = {"places": symbols.places, "base": symbols.base}
    return {
        "epsilon": epsilon,
        "classes": classes,
        "degree": degree,
        "mechanism": symbols.mechanism,
        **digits,
        "bytes": symbols.width,
        "says_the_truth": symbols.truth / COIN,
        "says_a_certain_other": symbols.other / COIN,
        "bits_per_symbol": bits,
        "share_error": math.sqrt(symbols.variance() / degree),
        "clean_neighbours": degree * bits / math.log2(classes),
    }
