"""`lumos budget`: print the information that messages keep under noise."""

import math
from typing import Annotated, Any

from rich.table import Table

from lumos.cli.common import Common, console, facts_table, placed, print_json
from lumos.errors import UsageError
from lumos.ldp.mechanisms import COIN, Mechanism, make_mechanism

COMMON = Common()


def budget(
    *,
    label_epsilon: Annotated[float, placed("label_epsilon")] = 3.0,
    classes: Annotated[int, placed("classes")] = 4,
    degree: Annotated[int, placed("degree")] = 10,
    mechanism: Annotated[str, placed("mechanism")] = "auto",
    propagated_labels: Annotated[int, placed("propagated_labels")] = 2,
    propagated_epsilon: Annotated[float, placed("propagated_epsilon")] = 4.0,
    common: Common = COMMON,
) -> None:
    """Print the information that randomized and propagated labels keep, without any data.

    Parameters
    ----------
    label_epsilon
        ε of a device's label, which is randomized once.
    classes
        k, the number of classes.
    degree
        Neighbours whose randomized labels a device receives.
    mechanism
        auto, krr (randomized response), or digits (the same on one digit of the label's number).
    propagated_labels
        Number of propagated labels that a device sends its neighbours, 0 to 3.
    propagated_epsilon
        ε of one propagated label.
    """
    if degree < 1:
        raise UsageError(f"`degree` must be 1 or more, got {degree}")
    if propagated_labels not in range(4):
        raise UsageError(f"`propagated_labels` must be 0 to 3, got {propagated_labels}")
    randomized_label = make_mechanism(classes, label_epsilon, mechanism)
    propagated_label = make_mechanism(classes, propagated_epsilon, mechanism)
    result = kept(randomized_label, degree)
    of_propagated_label = kept(propagated_label, degree) if propagated_labels else None
    if common.json:
        print_json({**result, "propagated_label": of_propagated_label})
        return
    console().print("randomized label, the same to each neighbour:")
    console().print(messages_table(randomized_label, result))
    if of_propagated_label is not None:
        console().print(
            f"\npropagated labels ({propagated_labels}), each the same to all neighbours:"
        )
        console().print(messages_table(propagated_label, of_propagated_label))


def kept(mechanism: Mechanism, degree: int) -> dict[str, Any]:
    """Return the information that a release keeps, as numbers.

    `clean_neighbours` compares information: bits of all randomized labels received over the bits of
    one.
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
        "bits_per_label": bits,
        "share_error": math.sqrt(mechanism.variance() / degree),
        "clean_neighbours": degree * bits / math.log2(mechanism.size),
    }


def messages_table(mechanism: Mechanism, result: dict[str, Any]) -> Table:
    """Return the information that a release keeps, as a table."""
    true, other = mechanism.values
    parameters = ", ".join(f"{name} {value}" for name, value in mechanism.parameters().items())
    many = "1 byte" if mechanism.width == 1 else f"{mechanism.width:,} bytes"
    rows = {
        "mechanism": f"{mechanism.name}{parameters and f' ({parameters})'}, {many} to each "
        "neighbour",
        "releases": f"{true} with probability {result['says_the_truth']:.4f}, "
        f"{other} with {result['says_a_certain_other']:.4f}",
        "information": f"{result['bits_per_label']:.4f} of {math.log2(mechanism.size):.4f} bits "
        "of a label",
        "standard error": f"±{result['share_error']:.3f} of the share of one value among "
        f"{result['degree']} neighbours",
        "worth": f"{result['degree']} neighbours under noise carry as much information as "
        f"{result['clean_neighbours']:.2f} without noise",
    }
    return facts_table(rows.items())
