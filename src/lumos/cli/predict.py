"""`lumos predict` and `lumos report`: use a trained model, and write its page."""

import time
from collections.abc import Sequence
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

from rich.table import Table

from lumos.cli.common import Common, console, placed, print_json
from lumos.cli.common import report as print_report
from lumos.display import displayed
from lumos.errors import InputError, UsageError
from lumos.storage import PRIVATE
from lumos.training.guarantees import guarantees_something
from lumos.training.profile import STRICT

if TYPE_CHECKING:
    from lumos.runs.run import Run
    from lumos.typing import Floats, Progress

COMMON = Common()
CERTIFICATE = "certificate.pem"
"""File that marks the folder of a real device."""
TOP = 10
"""Number of candidates that are printed."""
_SHOWN = 20


def predict(
    run: Annotated[Path, placed("run")],
    /,
    *,
    id: Annotated[list[str] | None, placed("id")] = None,
    pairs: Annotated[Path | None, placed("pairs")] = None,
    candidates: Annotated[Path | None, placed("candidates")] = None,
    top: Annotated[int | None, placed("top", show_default="10")] = None,
    scores: Annotated[
        Literal["ideal", "secure"] | None, placed("scores", show_default="ideal")
    ] = None,
    workers: Annotated[int | None, placed("workers")] = None,
    new_device: Annotated[Path | None, placed("new_device")] = None,
    export: Annotated[Path | None, placed("export")] = None,
    simulated: Annotated[bool, placed("simulated", negative="", show_default=False)] = False,
    peer: Annotated[list[int] | None, placed("with", name="--with")] = None,
    common: Common = COMMON,
) -> None:
    """Predict with the model of a run folder, or ask a running device.

    Parameters
    ----------
    run
        The folder that lumos train --out wrote; or that of a real device of which you are the
        owner (lumos up --stay), which is asked for its own label.
    id
        Only these devices, by their original ids; may be repeated. For links, all pairs of them.
    pairs
        For links: a file with two ids on each line, separated by a comma or by space. The first
        device of a pair asks the second.
    candidates
        For links, with one --id: a file with one id on each line. The device asks each of them.
    top
        Number of candidates to print, the most likely first.
    scores
        For links of the strict profile: ideal computes scores in the clear; secure by real
        cryptography between the two devices.
    workers
        Processes for the cryptography. Default: one per core.
    new_device
        A JSON file of devices that join after training:
        [{"id": …, "features": …, "neighbours": […]}].
    export
        File to write the weights to (.npz, see docs/run-folder.md).
    simulated
        Also export weights of a simulation: with randomness from the run seed, or sums in the
        clear. Whoever has such a file can find the label of a device by training again.
    peer
        For links, with the folder of a real device: the number of another device. The two score
        their pair by real cryptography between their processes. May be repeated.
    """
    if (run / CERTIFICATE).exists():
        others = (id, pairs, candidates, top, scores, workers, new_device, export)
        if any(given is not None for given in others):
            raise UsageError("a real device is asked for its own label, or --with others")
        _ask_device(run, peer, common)
        return
    if peer is not None:
        raise UsageError(f"--with belongs to the folder of a real device, and {run} is none")
    if simulated and export is None:
        raise UsageError("--simulated belongs to --export: it says which weights may be written")
    if sum(given is not None for given in (pairs, new_device, id)) > 1:
        raise UsageError("--id, --pairs and --new-device are three questions; ask one at a time")
    if candidates is not None and (id is None or len(id) != 1):
        raise UsageError("--candidates needs one --id: the device that asks them")
    if top is not None and top < 1:
        raise UsageError(f"--top must be 1 or more, got {top}")
    if top is not None and candidates is None:
        raise UsageError("--top has no effect without --candidates; leave it out")
    if workers is not None and scores != "secure":
        raise UsageError("--workers has no effect without --scores secure; leave it out")
    common.refuse_seed("a run predicts by what it was trained with")
    from lumos.runs.load import load_run
    from lumos.runs.predict import predict_new_devices, read_new_devices

    trained = load_run(run)
    train = trained.config.train
    protected = guarantees_something(trained.guarantees)
    if scores is not None and (trained.class_names or not protected):
        raise UsageError(
            "--scores has no effect for this run, only for one of --task link with guarantees; "
            "leave it out"
        )
    if scores is not None and id is None and pairs is None:
        raise UsageError("--scores has no effect without --id or --pairs; leave it out")
    result: dict[str, Any] = {"run": str(run), "task": train.task, "profile": train.profile}
    if export is not None:
        trained.export(export, simulated=simulated)
        result["export"] = str(export)
    if new_device is not None:
        arrived = read_new_devices(new_device, trained.about.features)
        chances, ledger = predict_new_devices(trained, arrived, data_dir=common.data_dir)
        rows = _labels(trained, [device.id for device in arrived], chances)
        noisy = trained.config.profile_settings.epsilon < float("inf")
        spent = ledger.epsilon_per_receiver if noisy else "inf"
        result["epsilon_spent_by_each_neighbour"] = spent
    elif (
        pairs is not None or candidates is not None or (id is not None and not trained.class_names)
    ):
        asked = _asked(trained, id, pairs, candidates)
        rows = _links(
            trained,
            asked,
            result,
            secure=scores == "secure",
            workers=workers,
            data_dir=common.data_dir,
        )
        if candidates is not None:
            rows.sort(key=lambda row: (not row["answered"], -row["probability"]))
            rows = rows[: top or TOP]
    elif export is None or (trained.class_names and not trained.about.deployed):
        rows = _rows(trained, id)
    else:
        rows = []
    result["rows"] = rows
    if common.json:
        print_json(result)
    else:
        _show(result)


def _ask_device(folder: Path, peers: list[int] | None, common: Common) -> None:
    """Print the predictions of a running device: its label, or its pairs with others."""
    from lumos.deploy.processes import ask_device

    questions: list[dict[str, Any]] = [{"ask": "label"}]
    if peers is not None:
        questions = [{"ask": "link", "device": peer} for peer in peers]
    result: dict[str, Any] = {"run": str(folder)}
    result["rows"] = [ask_device(folder, question) for question in questions]
    if common.json:
        print_json(result)
        return
    for row in result["rows"]:
        if peers is None:
            line = f"device {row['device']}: {row['label']} ({row['probability']:.1%})"
        else:
            how = "scored together" if row["answered"] else "not answered: by its own degree"
            line = f"edge to device {row['device']}: {row['probability']:.1%} ({how})"
        console().print(line, highlight=False)


def _rows(run: "Run", ids: list[str] | None) -> list[dict[str, Any]]:
    """Return id, label and probability of each device of the run, or of those named."""
    if not run.class_names:
        raise UsageError("this run predicts links; name devices with --id, or --pairs FILE")
    ids = None if ids is None else list(dict.fromkeys(ids))
    return _labels(run, run.ids if ids is None else ids, run.predict_proba(ids=ids))


def _asked(
    run: "Run", ids: list[str] | None, pairs: Path | None, candidates: Path | None
) -> list[tuple[str, str]]:
    """Return the pairs that are asked about."""
    if run.class_names:
        raise UsageError(
            "this run classifies; --pairs and --candidates are for runs that predict links"
        )
    if pairs is not None:
        return [(one, other) for one, other in _columns(pairs, 2)]
    names = list(dict.fromkeys(ids or []))
    if candidates is not None:
        others = [other for (other,) in _columns(candidates, 1) if other != names[0]]
        return [(names[0], other) for other in dict.fromkeys(others)]
    if len(names) < 2:
        raise UsageError("this run predicts links; name at least two devices with --id")
    return list(combinations(names, 2))


def _columns(path: Path, many: int) -> list[list[str]]:
    """Return `many` ids of each line of a file; empty lines and comments (#) are skipped."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: cannot be read ({error})") from None
    rows = []
    for number, line in enumerate(lines, 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        row = [part.strip() for part in (line.split(",") if "," in line else line.split())]
        if len(row) != many or not all(row):
            found = len(row) if all(row) else "an empty one"
            raise InputError(
                f"{path}, line {number}: expected {many} id{'s' * (many > 1)}, found {found}"
            )
        rows.append(row)
    if not rows:
        raise InputError(f"{path}: has no ids")
    return rows


def _links(
    run: "Run",
    pairs: list[tuple[str, str]],
    result: dict[str, Any],
    *,
    secure: bool,
    workers: int | None,
    data_dir: Path | None,
) -> list[dict[str, Any]]:
    """Return id, other, probability and whether the other answered, of each pair."""
    start = time.perf_counter()
    with displayed(True, "scores") as bar:
        found = run.ask_links(
            ids=pairs,
            secure=secure,
            workers=workers,
            progress=_per_second(bar, start),
            data_dir=data_dir,
        )
    result["asked"] = len(pairs)
    result["answered"] = int(found.answered.sum())
    if found.ledger is not None:
        seconds = time.perf_counter() - start
        result["scores"] = "secure" if secure else "ideal"
        result["seconds"] = round(seconds, 3)
        result["bytes"] = int(found.ledger.bytes_sent.sum())
    rows = zip(pairs, found.probability.tolist(), found.answered.tolist(), strict=True)
    return [
        {"id": one, "other": other, "probability": chance, "answered": answered}
        for (one, other), chance, answered in rows
    ]


def _per_second(bar: "Progress | None", start: float) -> Any:
    """Return a callback that shows the number of pairs scored per second."""

    def show(done: int, total: int) -> None:
        rate = done / max(time.perf_counter() - start, 1e-9)
        if bar is not None:
            bar(done, total, f"{rate:,.0f} pairs per second")

    return show


def _labels(run: "Run", names: Sequence[str], chances: "Floats") -> list[dict[str, Any]]:
    """Return the most likely class of each device, with its probability."""
    best = chances.argmax(axis=1)
    return [
        {"id": name, "label": run.class_names[label], "probability": float(chances[row, label])}
        for row, (name, label) in enumerate(zip(names, best.tolist(), strict=True))
    ]


def _cell(value: Any) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:.4f}" if isinstance(value, float) else str(value)


def _show(result: dict[str, Any]) -> None:
    rows = result["rows"]
    if rows:
        table = Table(*rows[0].keys(), box=None)
        for row in rows[:_SHOWN]:
            table.add_row(*(_cell(value) for value in row.values()))
        console().print(table)
    if len(rows) > _SHOWN:
        console().print(f"… {len(rows) - _SHOWN:,} more; --json gives all")
    if "seconds" in result:
        console().print(
            f"{result['answered']:,} of {result['asked']:,} pairs have an answer; "
            f"{result['scores']} scores: {result['seconds']:.1f} s, {result['bytes']:,} bytes sent"
        )
        if result["answered"] < result["asked"]:
            console().print(
                "pairs without an answer are scored by the asker's own degree: one of the two "
                "devices has used up its answers (docs/strict-links.md)"
            )
    elif "answered" in result and not result["answered"] and result["profile"] == STRICT:
        console().print(
            "no device was asked: this run scores pairs by the asker's own degree alone"
        )
    if "epsilon_spent_by_each_neighbour" in result:
        spent = result["epsilon_spent_by_each_neighbour"]
        console().print(
            "each neighbour sent its features in the clear (ε = inf)"
            if spent == "inf"
            else f"what each neighbour released to the new devices: ε = {spent:g}"
        )
    if "export" in result:
        console().print(f"weights: {result['export']}")


def report(
    run: Annotated[Path, placed("run")],
    /,
    *,
    out: Annotated[Path | None, placed("out")] = None,
    common: Common = COMMON,
) -> None:
    """Write one HTML page of a finished run: no script, nothing to load, ready to print.

    Parameters
    ----------
    run
        A folder that `lumos train … --out` wrote.
    out
        The file to write; RUN/report.html by default.
    """
    from lumos.runs.load import load_run  # torch takes a second to import: not for a wrong option

    path = load_run(run).report(run / "report.html" if out is None else out)
    if out is None:
        path.chmod(PRIVATE)  # as all files of a run folder
    print_report({"path": str(path)}, common, str(path))
