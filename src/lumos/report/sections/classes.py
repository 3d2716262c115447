"""Which classes are told apart and which are not, beside own features and the control."""

from lumos.report.class_blocks import HOW_TO_READ, ClassRows, confusion_block, per_class_table
from lumos.report.heat_map import is_wide
from lumos.report.metric import arms, measured
from lumos.report.page import Block, Section, Text
from lumos.runs.run import Run
from lumos.training.trainer import CONTROL, MAIN, OWN

_ARMS = {MAIN: "This run", OWN: "Own features only", CONTROL: "Control"}
_SHORT = {OWN: "own", CONTROL: "control"}


def has_classes(run: Run) -> bool:
    """Whether scores of single classes were measured."""
    return measured(run, MAIN, "test_per_class") is not None


def section(run: Run) -> Section:
    """A table of all classes, and who is taken for whom."""
    rows: ClassRows = measured(run, MAIN, "test_per_class") or []
    beside = {
        _SHORT[arm]: of_arm
        for arm in arms(run)
        if arm != MAIN and (of_arm := measured(run, arm, "test_per_class")) is not None
    }
    caption = "Test devices by class, in per cent"
    blocks: list[Block] = [Text(_words(rows, beside)), per_class_table(rows, beside, caption)]
    for arm in arms(run):
        counts = measured(run, arm, "test_confusion")
        if counts is None or (arm != MAIN and is_wide(run.classes)):
            continue
        title = f"{_ARMS[arm]}: who is taken for whom"
        read = HOW_TO_READ if arm == MAIN else f"The same of the arm `{arm}`."
        blocks.append(confusion_block(run.classes, counts, title, read))
    if beside and is_wide(run.classes):
        names = " and ".join(f"`run.{arm}`" for arm in beside)
        blocks.append(Text(f"The matrices of what stands beside the run are in {names}."))
    return Section("Single classes", blocks)


def _words(rows: ClassRows, beside: dict[str, ClassRows]) -> str:
    """Which class is hardest, and which gains most over own features."""
    present = [place for place, row in enumerate(rows) if row["devices"]]
    if not present:
        return "No test device has a label."
    hardest = min(present, key=lambda place: float(rows[place]["f1"]))
    text = (
        f"The hardest class is {rows[hardest]['class']} "
        f"(F1 {100 * rows[hardest]['f1']:.1f} %, {rows[hardest]['devices']:,} test devices)."
    )
    if own := beside.get(_SHORT[OWN]):
        gains = {place: float(rows[place]["f1"] - own[place]["f1"]) for place in present}
        best, worst = max(present, key=gains.__getitem__), min(present, key=gains.__getitem__)
        text += (
            f" Against own features only, F1 changes by {_signed(gains[worst])} points "
            f"({rows[worst]['class']}) to {_signed(gains[best])} points ({rows[best]['class']})."
        )
    return (
        f"{text}\n\nPrecision: of those taken for the class, how many are of it. Recall: of the "
        "class, how many are found. F1 is their harmonic mean."
    )


def _signed(share: float) -> str:
    """In points, with its sign."""
    return f"{100 * share:+.1f}".replace("-", "−")
