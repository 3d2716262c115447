"""`lumos budget`: forecast the information that messages keep and the gain in accuracy."""

import math
from typing import Annotated, Any

from rich.table import Table

from lumos.cli.common import Common, console, facts_table, placed, print_json
from lumos.errors import UsageError
from lumos.ldp.mechanisms import COIN, Mechanism, make_mechanism
from lumos.training.profile import FORECASTERS, STRICT, Expected, Forecast, Population

COMMON = Common()


def budget(
    *,
    epsilon: Annotated[float, placed("epsilon")] = 3.0,
    classes: Annotated[int, placed("classes")] = 4,
    degree: Annotated[int, placed("degree")] = 10,
    mechanism: Annotated[str, placed("mechanism")] = "auto",
    propagated_labels: Annotated[int, placed("propagated_labels")] = 2,
    propagated_epsilon: Annotated[float, placed("propagated_epsilon")] = 4.0,
    update_epsilon: Annotated[float, placed("update_epsilon")] = 8.0,
    devices: Annotated[int, placed("devices")] = 10_000,
    homophily: Annotated[float, placed("homophily")] = 0.8,
    own_accuracy: Annotated[float, placed("own_accuracy")] = 0.7,
    common: Common = COMMON,
) -> None:
    """Forecast the information that messages keep under noise, and what neighbours add to accuracy.

    The forecast is a simulation of strict classification, without any data: the same every time.

    Parameters
    ----------
    epsilon
        ε of the one randomized label that a device releases.
    classes
        k, the number of classes.
    degree
        Neighbours whose randomized labels a device receives; their mean in the forecast.
    mechanism
        auto, krr (randomized response), or digits (the same on one digit of the label's number).
    propagated_labels
        Number of propagated labels that a device sends its neighbours, 0 to 3.
    propagated_epsilon
        ε of one propagated label.
    update_epsilon
        ε of all updates together; with the number of devices, it determines the noise of sums.
    devices
        Number of devices; half of them train, a quarter validates.
    homophily
        Assumed share of edges between devices of one class, for classes of equal size.
    own_accuracy
        Assumed accuracy of the local model, which uses no neighbours.
    """
    if degree < 1:
        raise UsageError(f"`degree` must be 1 or more, got {degree}")
    randomized_label = make_mechanism(classes, epsilon, mechanism)
    propagated_label = make_mechanism(classes, propagated_epsilon, mechanism)
    population = Population(
        devices=devices,
        classes=classes,
        degree=degree,
        homophily=homophily,
        own_accuracy=own_accuracy,
    )
    forecast = FORECASTERS[STRICT](
        population,
        epsilon=epsilon,
        mechanism=mechanism,
        propagated_labels=propagated_labels,
        **({"propagated_epsilon": propagated_epsilon} if propagated_labels else {}),
        update_epsilon=update_epsilon,
    )
    result = kept(randomized_label, degree)
    of_propagated_label = kept(propagated_label, degree) if propagated_labels else None
    if common.json:
        print_json(
            {**result, "opinion": of_propagated_label, "forecast": forecast and as_json(forecast)}
        )
        return
    console().print("randomized label, the same to each neighbour:")
    console().print(messages_table(randomized_label, result))
    if of_propagated_label is not None:
        console().print(
            f"\npropagated labels ({propagated_labels}), each the same to all neighbours:"
        )
        console().print(messages_table(propagated_label, of_propagated_label))
    console().print()
    console().print(forecast_table(forecast) if forecast else NO_FORECAST)


NO_FORECAST = "no forecast: a simulation with this number of classes would take minutes"


def as_json(forecast: Forecast) -> dict[str, Any]:
    """Return the forecast as plain numbers."""
    by_name = {"clustered": forecast.clustered, "independent": forecast.independent}
    return {
        **{name: {**each._asdict(), "gain": each.gain} for name, each in by_name.items()},
        "assumptions": forecast.assumptions,
    }


def forecast_table(forecast: Forecast) -> Table:
    """Return the forecast as a table: a column for each assumption about errors."""
    table = Table(box=None, pad_edge=False, header_style="")
    for name in ("forecast, accuracy in %", "errors clustered", "independent"):
        table.add_column(name, justify="left" if name.startswith("forecast") else "right")
    both = forecast.clustered, forecast.independent
    rows = {
        "local model, as assumed": [f"{100 * each.own:.1f}" for each in both],
        "neighbours' messages alone": [f"{100 * each.neighbours:.1f}" for each in both],
        "both together": [f"{100 * each.together:.1f}" for each in both],
        "gain in points": [_gain(each) for each in both],
    }
    for name, cells in rows.items():
        table.add_row(name, *cells)
    table.caption = (
        f"Assumed: {forecast.assumptions}. Clustered, as in real graphs: neighbours err about the "
        "same devices as the local model; independent, as in generated graphs."
    )
    table.caption_justify = "left"
    return table


def _gain(expected: Expected) -> str:
    return f"{100 * expected.gain:+.1f} ± {100 * expected.error:.1f}"


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
        "bits_per_symbol": bits,
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
        "information": f"{result['bits_per_symbol']:.4f} of {math.log2(mechanism.size):.4f} bits "
        "of a label",
        "standard error": f"±{result['share_error']:.3f} of the share of one value among "
        f"{result['degree']} neighbours",
        "worth": f"{result['degree']} neighbours under noise carry as much information as "
        f"{result['clean_neighbours']:.2f} without noise",
    }
    return facts_table(rows.items())
