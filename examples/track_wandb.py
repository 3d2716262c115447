"""Follow a run in Weights & Biases, by the callback `on_epoch`."""

import lumos

try:
    import wandb
except ImportError:
    raise SystemExit("this example needs Weights & Biases; type: pip install wandb") from None

tracker = wandb.init(project="lumos", mode="offline")  # leave `mode` out to send it to the server


def log(event: lumos.EpochEvent) -> None:
    """Called after every epoch of every variant."""
    values = {"loss": event.loss, "score": event.score, "seconds": event.seconds}
    known = {
        f"{event.variant}/{name}": value for name, value in values.items() if value is not None
    }
    tracker.log({"epoch": event.epoch, **known})


run = lumos.train("demo:600", on_epoch=log)
tracker.config.update({name: str(value) for name, value in run.config.flat().items()})
tracker.summary.update({k: v for k, v in run.metrics.items() if isinstance(v, float)})
tracker.finish()
