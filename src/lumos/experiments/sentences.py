"""Sentences that the tables and the page share."""

from lumos.experiments.device_model import DeviceModel
from lumos.experiments.reported import CAPTIONS
from lumos.experiments.reproduction import Reproduction
from lumos.experiments.request import Request
from lumos.experiments.settings import PAPER_EPOCHS, EvaluationSettings


def introduction(request: Request, outcome: Reproduction) -> list[str]:
    """What a reader of any table must know."""
    settings = request.settings
    sentences = [f"Command: `{request.command}`."]
    if settings.minutes is not None:
        sentences.append(_quick(settings, outcome))
    sentences.append(_epochs(settings))
    sentences.append(
        "ours: mean and standard deviation over seeds; control: the same run with releases that "
        "carry no information; over control: the run's gain over it, on the seeds that have one."
    )
    if outcome.other_version:
        sentences.append(f"{outcome.other_version} cells are kept from another result version.")
    return sentences


def _quick(settings: EvaluationSettings, outcome: Reproduction) -> str:
    """What the quick form has, and what it leaves out."""
    limit = f"{settings.minutes:g} minutes on {settings.cores} cores"
    if not outcome.left_out:
        return f"**Quick form**: all runs are expected to finish within {limit}; none is left out."
    missing = sum(outcome.left_out.values()) / settings.cores
    return (
        f"**Quick form**: runs that are expected to finish within {limit}; "
        f"{len(outcome.left_out)} are left out, with which it would take {duration(missing)} more."
    )


def _epochs(settings: EvaluationSettings) -> str:
    """How long runs are trained."""
    if settings.shortened:
        return (
            f"**Shortened**: {settings.asked_epochs} epochs of the paper profile and of baselines. "
            "Scores of runs that this cuts have a table of their own, and show that everything "
            "runs. No difference and no plot uses them."
        )
    most = settings.asked_epochs or max(
        count for given in settings.epochs.values() for count in given.values()
    )
    return (
        f"Up to {most} epochs{', as in the paper' * (most == PAPER_EPOCHS)}; a run of the paper "
        f"profile or of a baseline ends after {settings.patience} epochs without a better "
        "validation score."
    )


def about_figure(figure: str) -> list[str]:
    """What a reader of one figure must know besides."""
    return [device_sentence()] if figure == "cost" else []


def device_sentence() -> str:
    """The device and network model in a sentence."""
    device = DeviceModel()
    return (
        f"Simulated time: every round lasts {1000 * device.latency:g} ms and as long as its "
        f"slowest device, which sends {8e-6 * device.upload:g} Mbit/s, receives "
        f"{8e-6 * device.download:g} Mbit/s, adds {device.header} bytes to each message and "
        f"computes {device.flops / 1e9:g} GFLOP/s; messages and bytes of each device are the "
        "ledger's, work is counted on its own tree (two-layer GCN)."
    )


def caption(figure: str) -> str:
    """The paper's caption of a figure."""
    return f"The paper: {CAPTIONS[figure]}."


def duration(seconds: float) -> str:
    """Seconds for people."""
    if seconds < 120:
        return f"{seconds:.0f} s"
    if seconds < 7200:
        return f"{seconds / 60:.1f} min"
    return f"{seconds / 3600:.1f} h"
