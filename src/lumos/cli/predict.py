"""`lumos predict`: use a trained model."""

from collections.abc import Sequence
from csv import DictWriter
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from lumos.cli.common import Common, console, print_json
from lumos.errors import UsageError

if TYPE_CHECKING:
    from lumos.runs.run import Run
    from lumos.typing import Floats

COMMON = Common()
_SHOWN = 20


def predict(
    run: Path,
    /,
    *,
    id: list[str] | None = None,
    newcomer: Path | None = None,
    csv: Path | None = None,
    export: Path | None = None,
    common: Common = COMMON,
) -> None:
    """Predict with the model of a run folder.

    Parameters
    ----------
    run
        The folder that lumos train --out wrote.
    id
        Only these devices, by their original ids; may be repeated. For links, all pairs of them.
    newcomer
        A JSON file of devices that join after training:
        [{"id": …, "features": …, "neighbours": […]}].
    csv
        File to write all rows to.
    export
        File to write the weights to (.npz, see docs/training.md).
    """
    if id is not None and newcomer is not None:
        raise UsageError("--id is for devices of the run, --newcomer for others; choose one")
    from lumos.runs.load import load_run
    from lumos.runs.newcomers import predict_newcomers, read_newcomers

    trained = load_run(run)
    train = trained.config.train
    result: dict[str, Any] = {"run": str(run), "task": train.task, "profile": train.profile}
    if export is not None:
        trained.export(export)
        result["export"] = str(export)
    if newcomer is not None:
        arrived = read_newcomers(newcomer, trained.about.features)
        chances, ledger = predict_newcomers(trained, arrived, data_dir=common.data_dir)
        rows = _labels(trained, [device.id for device in arrived], chances)
        noisy = trained.config.profile_settings.epsilon < float("inf")
        spent = ledger.epsilon_per_receiver if noisy else "inf"
        result["epsilon_spent_by_each_neighbour"] = spent
    elif trained.classes or id is not None or export is None:
        rows = _rows(trained, id)
    else:
        rows = []
    result["rows"] = rows
    if csv is not None:
        _write(csv, rows)
        result["csv"] = str(csv)
    if common.json:
        print_json(result)
    else:
        _show(result)


def _rows(run: "Run", ids: list[str] | None) -> list[dict[str, Any]]:
    """Predictions for devices of the run: all, or those named.

    classify: id, label, probability of each device. link: id, other, probability of an edge for
    each pair of the named devices.
    """
    ids = None if ids is None else list(dict.fromkeys(ids))
    if run.classes:
        return _labels(run, run.ids if ids is None else ids, run.predict_proba(ids))
    if ids is None or len(ids) < 2:
        raise UsageError("this run predicts links; name at least two devices with --id")
    pairs = list(combinations(ids, 2))
    return [
        {"id": one, "other": other, "probability": float(chance)}
        for (one, other), chance in zip(pairs, run.predict_links(pairs), strict=True)
    ]


def _labels(run: "Run", names: Sequence[str], chances: "Floats") -> list[dict[str, Any]]:
    """The most likely class of each device, with its probability."""
    best = chances.argmax(axis=1)
    return [
        {"id": name, "label": run.classes[label], "probability": float(chances[row, label])}
        for row, (name, label) in enumerate(zip(names, best.tolist(), strict=True))
    ]


def _write(path: Path, rows: list[dict[str, Any]]) -> None:
    if not rows:
        raise UsageError("--csv: there are no rows to write; name devices with --id")
    try:
        with path.open("w", newline="", encoding="utf-8") as file:
            writer = DictWriter(file, rows[0].keys())
            writer.writeheader()
            writer.writerows(rows)
    except OSError as error:
        raise UsageError(f"{path}: cannot be written ({error.strerror})") from None


def _show(result: dict[str, Any]) -> None:
    rows = result["rows"]
    if rows:
        table = Table(*rows[0].keys(), box=None)
        for row in rows[:_SHOWN]:
            table.add_row(*(f"{v:.4f}" if isinstance(v, float) else v for v in row.values()))
        console().print(table)
    if len(rows) > _SHOWN:
        console().print(f"… {len(rows) - _SHOWN:,} more; --csv FILE or --json gives all")
    if "epsilon_spent_by_each_neighbour" in result:
        spent = result["epsilon_spent_by_each_neighbour"]
        console().print(
            "each neighbour sent its features in the clear (ε = inf)"
            if spent == "inf"
            else f"what each neighbour released to the newcomers: ε = {spent:g}"
        )
    if "export" in result:
        console().print(f"weights: {result['export']}")
