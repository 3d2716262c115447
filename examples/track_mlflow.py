"""Follow a run in MLflow, by the callback `on_epoch`."""

import lumos

try:
    import mlflow
except ImportError:
    raise SystemExit("this example needs MLflow; type: pip install mlflow") from None


def log(event: lumos.EpochEvent) -> None:
    """Called after every epoch of every variant."""
    for name in ("loss", "score", "seconds"):
        if (value := getattr(event, name)) is not None:  # some epochs predict nothing yet
            mlflow.log_metric(f"{event.variant}/{name}", value, step=event.epoch)


with mlflow.start_run(run_name="demo"):
    run = lumos.train("demo:600", on_epoch=log)
    mlflow.log_params({name: str(value) for name, value in run.config.flat().items()})
    mlflow.log_metrics({k: v for k, v in run.metrics.items() if isinstance(v, float)})
    mlflow.log_artifact(str(run.report("report.html")))
