"""Numbers of many small runs that no change of the code may move: weights, ledgers, guarantees.

A redesign keeps every number of `pinned.json`. Digests of arrays and floats are compared exactly on
the machine that wrote the file, and within a relative tolerance of 1e-6 elsewhere; whole numbers
are compared exactly everywhere. Wording, names of fields and forms of files are not pinned.

All knowledge of the package's inside is in the functions of the first part. After an intended
change of numbers, write the file again, from the root of the repository:

    python -m tests.test_pinned --write
"""

import json
import math
import platform
import re
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.deploy.conftest import split_into_devices
from tests.session_doubles import Stream

import lumos
from lumos.crypto import entropy
from lumos.deploy.virtual import Federation
from lumos.device.shard import COORDINATOR
from lumos.graph.facts import facts_of
from lumos.ldp.account import FILE as ACCOUNT
from lumos.ldp.account import PrivacyAccount
from lumos.runs.predict import NewDevice, predict_new_devices
from lumos.training.guarantees import cells_of, guarantees_something
from lumos.training.split import Role

FILE = Path(__file__).with_name("pinned.json")
TOLERANCE = 1e-6
"""Relative, on another machine than the one that wrote the file."""
DIGEST = "digest"
"""Key of what is compared on the machine that wrote the file only."""

Numbers = dict[str, Any]
"""Whole numbers, floats, digests, and lists and objects of them, by neutral names."""


# Access to the package: the only part that a redesign has to follow.


def train(graph: Any, **settings: Any) -> Any:
    """Return a finished run."""
    return lumos.train(graph, **settings)


def variants(run: Any) -> dict[str, tuple[Mapping[str, Any], list[Any]]]:
    """Return scores and epochs of the run, of the local model, and of the control run."""
    names = {"run": "run", "local": "own", "control": "control"}
    return {
        name: (run.scores[inside], run.histories.get(inside, []))
        for name, inside in names.items()
        if inside in run.scores
    }


def trained_arrays(run: Any) -> dict[str, list[Any]]:
    """Return the arrays of a model in their order, whatever their names."""
    model = run.model
    return {
        "weights": list(model.weights.values()),
        "logits": [] if model.logits is None else [model.logits],
        "embeddings": [model.embeddings],
        "kept": list(model.kept.values()),
    }


def printed_guarantees(run: Any) -> list[list[str]]:
    """Return the cells of the table of guarantees, row by row, without what each is about."""
    return [list(cells_of(row).values()) for row in run.guarantees]


def exact_guarantees(run: Any) -> Numbers:
    """Return ε and μ of a strict run before they are rounded, and the noise of every sum."""
    config = run.config
    schedule: Any = config.profile._schedule(facts_of(run.graph), config)
    if config.train.task == "link":
        groups = [schedule.disclosed()]
    else:
        groups = [schedule.disclosed(role) for role in (Role.TRAIN, Role.VALIDATION, Role.TEST)]
    noise = [stage.noise(step) for stage, step in schedule.sums]
    questions = ("label", "features", "record", "norm", "edge")
    return {
        "mu_of_all_sums": schedule.whole_mu,
        "groups": [
            {
                "label_epsilon": group.label,
                "messages_epsilon": group.propagated_labels,
                "mu": [group.mu[name] for name in questions],
                "epsilon": [
                    0.0 if not group.mu[name] else schedule.account(group.mu[name])[0]
                    for name in questions
                ],
                "answers": group.answers,
            }
            for group in groups
        ],
        "noise": [None if one is None else one.total for one in noise],
    }


def ledger_numbers(ledger: Any) -> Numbers:
    """Return everything that a ledger counts."""
    of_devices = (
        ledger.messages_sent,
        ledger.messages_received,
        ledger.bytes_sent,
        ledger.bytes_received,
        ledger.device_rounds,
    )
    return {
        "messages": ledger.messages,
        "bytes": ledger.bytes,
        "rounds": ledger.rounds,
        "comparisons": ledger.comparisons,
        "scores": ledger.scores,
        "lengths": list(ledger.comparison_lengths),
        "bits": [
            ledger.comparison_bits,
            ledger.control_bits,
            ledger.bits_per_pair_mean,
            ledger.bits_per_pair_largest,
        ],
        "epsilon": [ledger.epsilon_per_receiver, ledger.epsilon_collusion, ledger.edge_epsilon],
        "topics": {name: [line.messages, line.bytes] for name, line in ledger.topics.items()},
        "clear": {
            name: [flow["messages"], flow["bytes"]] for name, flow in ledger.clear_traffic.items()
        },
        "devices": whole_digest(*of_devices),
        "pairs": whole_digest(ledger.pairs),
        "device_bits": summary(ledger.device_comparison_bits),
        "pair_bits": summary(ledger.pair_bits),
        "device_epsilon": [
            summary(ledger.device_epsilon),
            summary(ledger.device_epsilon_collusion),
            summary(ledger.device_edge_epsilon),
        ],
    }


def tree_numbers(trees: Any) -> Numbers:
    """Return who is assigned which edge, and what it took to agree on it."""
    return {
        "largest": trees.max_workload,
        "assigned": whole_digest(trees.keep),
        "workload": whole_digest(trees.workload),
        "history": [list(step) for step in trees.history],
        "ledger": ledger_numbers(trees.ledger),
    }


def account_numbers(folder: Path) -> dict[str, Any]:
    """Return the totals of the devices' privacy account, by kind of charge."""
    with np.load(folder / ACCOUNT) as arrays:
        ids, kinds = arrays["ids"].tolist(), np.unique(arrays["charges/kind"]).tolist()
    account = PrivacyAccount(folder, ids)
    return {kind: summary(account.spent(kind)) for kind in kinds}


@contextmanager
def repeatable_entropy() -> Iterator[None]:
    """Replace the operating system's random bytes by streams, one for each length of a draw.

    A privacy account draws secrets and marks from it, which name the randomness of later runs.
    """
    streams: dict[int, Stream] = {}

    def draw(count: int) -> bytes:
        return streams.setdefault(count, Stream(f"pinned {count}"))(count)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entropy, "draw", draw)
        yield


def new_devices(run: Any, devices: Iterable[int]) -> tuple[Any, Any]:
    """Predict copies of some devices as new ones; return probabilities and ledger."""
    graph = run.graph
    copies = [
        NewDevice(
            id=f"copy {device}",
            features=np.asarray(graph.features[[device]].todense(), np.float32).ravel(),
            neighbours=tuple(
                str(other)
                for other in graph.neighbours[graph.offsets[device] : graph.offsets[device + 1]]
            ),
        )
        for device in devices
    ]
    return predict_new_devices(run, copies, graph=graph)


def deployment_numbers(federation: Federation) -> Numbers:
    """Return what all parties of a deployment in virtual time ended with."""
    participants = [
        federation.participants[participant]
        for participant in (COORDINATOR, *range(federation.total))
    ]
    weights = [
        list(participant.job.trainer.state_dict("model").values()) for participant in participants
    ]
    flows = [participant.job.ledgers.flows() for participant in participants]
    return {
        "weights": summaries(weights[0]),
        "alike": sum(digest(*of_participant) == digest(*weights[0]) for of_participant in weights),
        "losses": federation.losses,
        "left_out": len(federation.coordinator.left_out),
        "flows": [
            {
                topic: [counts[name] for name in sorted(counts)]
                for topic, counts in sorted(of.items())
            }
            for of in flows
        ],
    }


# From results to numbers.


def digest(*arrays: Any) -> str:
    """Return a digest of the exact bytes, types and shapes of arrays."""
    state = blake2b(digest_size=16)
    for array in map(np.asarray, arrays):
        state.update(f"{array.dtype.str}{array.shape}".encode())
        state.update(np.ascontiguousarray(array).tobytes())
    return state.hexdigest()


def whole_digest(*arrays: Any) -> str:
    """Return a digest of whole numbers: the same on every machine."""
    return digest(*(np.asarray(array, np.int64) for array in arrays))


def summary(array: Any) -> Numbers:
    """Return a digest of an array, and a few floats that are compared on any machine."""
    array = np.asarray(array)
    values = array.astype(np.float64).ravel()
    return {
        DIGEST: digest(array),
        "shape": list(array.shape),
        "sum": math.fsum(values.tolist()),
        "norm": math.sqrt(math.fsum((values**2).tolist())),
        "first": values[:3].tolist(),
    }


def summaries(arrays: Iterable[Any]) -> list[Numbers]:
    """Return a summary of each array that has numbers in it."""
    return [
        summary(array)
        for array in map(np.asarray, arrays)
        if array.size and array.dtype.kind in "fiub"
    ]


def score_numbers(scores: Mapping[str, Any]) -> Numbers:
    return {
        name: value
        for name, value in scores.items()
        if isinstance(value, int | float) or name.endswith("confusion")
    }


def epsilons(cell: str) -> list[float]:
    """Return every (ε, δ) and every ε of a cell of the table of guarantees."""
    pairs = re.findall(r"\(([\d.e+-]+), ([\d.e+-]+)\)|ε = ([\d.e+-]*\d)", cell)
    return [float(number) for found in pairs for number in found if number]


def run_numbers(run: Any) -> Numbers:
    """Return the numbers of a finished run."""
    numbers: Numbers = {name: summaries(arrays) for name, arrays in trained_arrays(run).items()}
    for name, (scores, history) in variants(run).items():
        numbers[f"scores/{name}"] = score_numbers(scores)
        numbers[f"losses/{name}"] = [event.loss for event in history]
        numbers[f"validation/{name}"] = [event.score for event in history]
    numbers["best_epoch"] = run.model.best_epoch
    numbers["estimates"] = list(run.model.estimates.values())
    numbers["ledger"] = ledger_numbers(run.ledger)
    numbers["trees"] = tree_numbers(run.trees)
    cells = printed_guarantees(run)
    if guarantees_something(run.guarantees):
        numbers["guarantees"] = [[epsilons(cell) for cell in row] for row in cells]
        numbers["exact_guarantees"] = exact_guarantees(run)
    return numbers


# The configurations.

GRAPH = "demo:60"
STRICT = {"profile": "strict", "encoder_epochs": 3, "epochs": 11}
PAPER = {"profile": "paper", "epochs": 4, "balancer": "greedy", "compare": "ideal"}
PAIRS = [(0, 1), (2, 3), (4, 50), (17, 18), (20, 40)]


def small_graph(largest: float) -> lumos.Graph:
    """Return a graph of 40 devices whose dense features are signed, up to a size."""
    rng = np.random.default_rng(0)
    labels = np.arange(40) % 4
    features = rng.uniform(-1, 1, size=(40, 12))
    features[np.arange(40), labels] = 1
    scales = np.geomspace(largest / 100, largest, 12)
    return lumos.Graph.from_edges(
        rng.integers(0, 35, (80, 2)),
        devices=40,
        features=(features * scales).astype(np.float32),
        labels=labels,
        classes=["0", "1", "2", "3"],
    )


def trained(graph: Any, settings: Mapping[str, Any], **others: Any) -> Numbers:
    return run_numbers(train(graph, **{**settings, **others}))


def with_links(**settings: Any) -> Numbers:
    """Run a link prediction, and ask about some pairs."""
    secure = settings.pop("secure", False)
    run = train(GRAPH, task="link", **settings)
    found = run.ask_links(ids=PAIRS, secure=secure, workers=1)
    ledger = {} if found.ledger is None else {"asked_ledger": ledger_numbers(found.ledger)}
    asked = summaries([found.probability, found.answered])
    return {**run_numbers(run), "asked": asked, **ledger}


def with_new_devices(settings: Mapping[str, Any]) -> Numbers:
    run = train(GRAPH, **settings)
    probabilities, ledger = new_devices(run, (3, 8, 21))
    return {"probabilities": summary(probabilities), "ledger": ledger_numbers(ledger)}


def with_account(task: str) -> Numbers:
    """Run twice with one privacy account: other seeds, and so other roles."""
    with tempfile.TemporaryDirectory() as folder, repeatable_entropy():
        settings = STRICT if task == "classify" else {"profile": "strict", "task": task}
        first = trained(GRAPH, settings, account=Path(folder))
        again = trained(GRAPH, settings, account=Path(folder), seed=1)
        return {"first": first, "again": again, "account": account_numbers(Path(folder))}


def balanced(balancer: str, compare: Any = "ideal", **settings: Any) -> Numbers:
    graph, shards = settings.pop("graph", "demo:200"), settings.pop("shards", 1)
    chosen = lumos.TreeSettings(balancer=balancer, compare=compare, workers=1, **settings)
    trees = lumos.balance(graph, chosen, shards=shards)
    return {**tree_numbers(trees), "lower_bound": trees.lower_bound()}


def measured(system: str, epochs: int = 4, **settings: Any) -> Numbers:
    result = lumos.baseline("demo:120", system=system, epochs=epochs, **settings)
    return {
        "outputs": summary(result.outputs),
        "scores": score_numbers(result.metrics),
        "losses": [epoch["loss"] for epoch in result.history],
        "validation": [epoch["score"] for epoch in result.history],
        "best_epoch": result.best_epoch,
    }


def attacked(*attacks: str, **settings: Any) -> Numbers:
    report = lumos.run_audit(GRAPH, attacks=attacks, **settings)
    return {
        "rows": [
            [row["attack"], *(row[name] for name in ("value", "low", "high", "chance", "bound"))]
            for row in report.to_json()["rows"]
        ]
    }


def deployed() -> Numbers:
    """Run twelve devices and a coordinator, each a program of its own, in virtual time."""
    config = lumos.Config.asked(aggregate="secure", encoder_epochs=2, propagated_labels=1, epochs=8)
    with tempfile.TemporaryDirectory() as folder:
        federation = Federation(split_into_devices("demo:12", Path(folder) / "parts"), config)
        federation.run()
        return deployment_numbers(federation)


CONFIGURATIONS: dict[str, Callable[[], Numbers]] = {
    "strict classify": partial(trained, GRAPH, STRICT),
    "strict classify, 200 devices": partial(trained, "demo:200", {"profile": "strict"}),
    "strict classify, 3 shards": partial(trained, GRAPH, STRICT, shards=3),
    "strict classify, secure": partial(trained, GRAPH, STRICT, aggregate="secure"),
    "strict classify, secure, 3 shards": partial(
        trained, GRAPH, STRICT, aggregate="secure", shards=3
    ),
    "strict classify, tree network": partial(
        trained, GRAPH, {**STRICT, "epochs": 50, "tree_network": True}
    ),
    "strict classify, tree network gat": partial(
        trained, GRAPH, {**STRICT, "epochs": 50, "tree_network": True, "backbone": "gat"}
    ),
    "strict classify, digits": partial(
        trained, GRAPH, STRICT, mechanism="digits", propagated_labels=1
    ),
    "strict classify, control": partial(trained, GRAPH, STRICT, control=True),
    "strict classify, no local model": partial(trained, GRAPH, STRICT, floor=False),
    "strict classify, no noise": partial(trained, GRAPH, STRICT, protect="none"),
    "strict classify, signed": partial(trained, small_graph(1.0), STRICT),
    "strict classify, scaled": partial(trained, small_graph(50.0), STRICT),
    "strict classify, scaled by size": partial(trained, small_graph(50.0), STRICT, scaling="size"),
    "strict classify, account": partial(with_account, "classify"),
    "strict classify, new devices": partial(with_new_devices, STRICT),
    "strict link": partial(with_links, profile="strict"),
    "strict link, 3 shards": partial(with_links, profile="strict", shards=3),
    "strict link, secure": partial(
        with_links,
        profile="strict",
        aggregate="secure",
        random_marks=4,
        secure=True,
    ),
    "strict link, control": partial(with_links, profile="strict", control=True),
    "strict link, noisy answers": partial(
        with_links,
        profile="strict",
        query_epsilon=1.0,
        query_bits=1,
        propagated_labels=1,
    ),
    "strict link, scaled": partial(
        trained, small_graph(50.0), {"profile": "strict", "task": "link"}
    ),
    "strict link, account": partial(with_account, "link"),
    "paper classify": partial(trained, GRAPH, PAPER),
    "paper classify, 3 shards": partial(trained, GRAPH, PAPER, shards=3),
    "paper classify, secure": partial(trained, GRAPH, PAPER, aggregate="secure"),
    "paper classify, gat": partial(trained, GRAPH, PAPER, backbone="gat", pool="attention"),
    "paper classify, sage": partial(trained, GRAPH, PAPER, backbone="sage", pool="max"),
    "paper classify, control": partial(trained, GRAPH, PAPER, control=True, epsilon=1.0),
    "paper classify, literal": partial(
        trained,
        GRAPH,
        {**PAPER, "recovery": "literal", "select": "last", "balancer": "mcmc", "iterations": 20},
    ),
    "paper classify, no virtual nodes": partial(
        trained, GRAPH, PAPER, virtual_nodes=False, patience=1, pool="sum", balancer="none"
    ),
    "paper classify, exact features": partial(trained, GRAPH, PAPER, epsilon=math.inf),
    "paper classify, new devices": partial(with_new_devices, PAPER),
    "paper link": partial(with_links, **PAPER),
    "paper link, 3 shards": partial(with_links, **PAPER, shards=3),
    "paper link, secure": partial(with_links, **{**PAPER, "epochs": 2}, aggregate="secure"),
    "paper link, gat": partial(with_links, **{**PAPER, "balancer": "optimal"}, backbone="gat"),
    "twelve devices in virtual time": deployed,
    "trees none": partial(balanced, "none"),
    "trees greedy": partial(balanced, "greedy"),
    "trees mcmc": partial(balanced, "mcmc", iterations=60),
    "trees mcmc, 3 shards": partial(balanced, "mcmc", iterations=60, shards=3),
    "trees optimal": partial(balanced, "optimal"),
    "trees greedy, secure": partial(balanced, "greedy", "secure", graph=GRAPH),
    "trees mcmc, secure": partial(balanced, "mcmc", "secure", graph=GRAPH, iterations=5),
    "trees optimal, secure": partial(balanced, "optimal", "secure", graph=GRAPH),
    "centralized classify": partial(measured, "centralized"),
    "centralized classify, gat": partial(measured, "centralized", backbone="gat"),
    "centralized link": partial(measured, "centralized", 2, task="link"),
    "local classify": partial(measured, "own"),
    "lpgnn classify": partial(measured, "lpgnn", feature_epsilon=2.0, label_epsilon=1.0),
    "naive classify": partial(measured, "naive", feature_epsilon=2.0),
    "naive classify, gat": partial(
        measured, "naive", 2, feature_epsilon=2.0, backbone="gat", edge_sample=2000
    ),
    "naive link": partial(measured, "naive", feature_epsilon=2.0, task="link"),
    "audit strict": partial(
        attacked,
        "randomized-labels",
        "propagated-labels",
        "ledger",
        profile="strict",
        task="classify",
    ),
    "audit paper": partial(attacked, "trees", task="classify", **PAPER),
}

ALIKE = [
    ("strict classify", "strict classify, 3 shards"),
    ("strict classify, secure", "strict classify, secure, 3 shards"),
    ("strict link", "strict link, 3 shards"),
    ("trees mcmc", "trees mcmc, 3 shards"),
]
"""Configurations with the same numbers: how devices are placed changes nothing."""


# Writing and comparing.


def machine() -> str:
    """Name what floats may depend on: the processor, and the libraries that compute."""
    cpus = Path("/proc/cpuinfo")
    text = cpus.read_text() if cpus.exists() else ""
    model = re.search(r"^model name\s*:\s*(.*)$", text, re.MULTILINE)
    return " | ".join(
        (
            platform.machine(),
            model[1] if model else platform.processor(),
            torch.backends.cpu.get_cpu_capability(),
            f"torch {torch.__version__}",
            f"numpy {np.__version__}",
        )
    )


def plain(numbers: Numbers) -> Any:
    """Return numbers as JSON has them, to the last digit."""
    return json.loads(json.dumps(numbers))


def written(numbers: Mapping[str, Any]) -> str:
    """Return the text of the file: a line for each part of a configuration."""
    lines = [f' "machine": {json.dumps(machine())},', ' "numbers": {']
    for name, parts in numbers.items():
        inside = ",\n".join(f"   {json.dumps(key)}: {json.dumps(of)}" for key, of in parts.items())
        comma = "," if name != list(numbers)[-1] else ""
        lines.append(f"  {json.dumps(name)}: {{\n{inside}\n  }}{comma}")
    return "\n".join(("{", *lines, " }", "}")) + "\n"


def differences(before: Any, after: Any, exact: bool, where: str = "") -> list[str]:
    """Return where two trees of numbers differ.

    Args:
        exact: digests and floats are compared to the last bit.
    """
    if isinstance(before, dict) and isinstance(after, dict):
        if not exact and DIGEST in before:
            return _summaries_differ(before, after, where)
        return [
            line
            for name in dict.fromkeys((*before, *after))
            for line in differences(
                before.get(name, "missing"), after.get(name, "missing"), exact, f"{where}/{name}"
            )
        ]
    if isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        return [
            line
            for place, (one, other) in enumerate(zip(before, after, strict=True))
            for line in differences(one, other, exact, f"{where}[{place}]")
        ]
    if isinstance(before, float) and isinstance(after, float):
        close = math.isclose(before, after, rel_tol=TOLERANCE)
        same = before == after or (before != before and after != after) or (close and not exact)
    else:
        same = type(before) is type(after) and before == after
    return [] if same else [f"{where}: was {before}, is {after}"]


def _summaries_differ(before: Numbers, after: Numbers, where: str) -> list[str]:
    """Compare arrays of two machines; a sum may cancel, so it is held against its largest size."""
    norm = before["norm"]
    largest = {"sum": norm * math.sqrt(math.prod(before["shape"])), "norm": norm, "first": norm}
    same = before["shape"] == after.get("shape") and all(
        np.allclose(before[name], after[name], rtol=TOLERANCE, atol=TOLERANCE * size)
        for name, size in largest.items()
    )
    return [] if same else [f"{where}: was {before}, is {after}"]


@pytest.fixture(scope="module")
def pinned() -> Any:
    return json.loads(FILE.read_text("utf-8"))


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_numbers_are_as_they_were(name: str, pinned: Any) -> None:
    exact = pinned["machine"] == machine()
    changed = differences(pinned["numbers"][name], plain(CONFIGURATIONS[name]()), exact)
    assert not changed, "\n".join(changed[:20])


def test_every_pinned_configuration_is_computed(pinned: Any) -> None:
    assert pinned["numbers"].keys() == CONFIGURATIONS.keys()


@pytest.mark.parametrize(("one", "other"), ALIKE)
def test_pinned_numbers_do_not_depend_on_shards(one: str, other: str, pinned: Any) -> None:
    numbers, others = (dict(pinned["numbers"][name]) for name in (one, other))
    for each in (numbers, others):  # what stands for messages in a simulation does depend on them
        for part in (each, each.get("trees", {})):
            for ledger in ("ledger", "asked_ledger"):
                part.get(ledger, {}).pop("clear", None)
    assert not differences(numbers, others, exact=True)


@pytest.mark.parametrize(
    ("before", "after", "exact", "same"),
    [
        (1.0, 1.0 + 1e-12, True, False),
        (1.0, 1.0 + 1e-12, False, True),
        (1.0, 1.0 + 1e-5, False, False),
        (3, 4, False, False),
        ([1, 2], [1, 2, 3], False, False),
        ({"a": 1}, {"b": 1}, False, False),
        (summary([1.0, 2.0]), summary([1.0, 2.0 + 1e-12]), True, False),
        (summary([1.0, 2.0]), summary([1.0, 2.0 + 1e-12]), False, True),
        (summary([1.0, 2.0]), summary([1.0, 2.0 + 1e-4]), False, False),
    ],
)
def test_what_counts_as_a_difference(before: Any, after: Any, exact: bool, same: bool) -> None:
    assert (not differences(before, after, exact)) == same


def main() -> int:
    """Write the file, or say what differs from it."""
    torch.set_num_threads(1)
    numbers = {name: plain(compute()) for name, compute in CONFIGURATIONS.items()}
    if sys.argv[1:] == ["--write"]:
        FILE.write_text(written(numbers), "utf-8")
        return 0
    before = json.loads(FILE.read_text("utf-8"))
    changed = differences(before["numbers"], numbers, exact=before["machine"] == machine())
    print("\n".join(changed) or "nothing changed")
    return int(bool(changed))


if __name__ == "__main__":
    sys.exit(main())
