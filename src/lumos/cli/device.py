"""`lumos device`: be one device, or several in a process each."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lumos.cli.common import Common, print_json
from lumos.cli.option_groups import placed
from lumos.errors import RunFailed, UsageError

COMMON = Common()


def device(
    *folder: Annotated[Path, placed("folder")],
    broker: Annotated[str | None, placed("broker", negative="")] = None,
    common: Annotated[Common, Parameter(name="*")] = COMMON,
) -> None:
    """Take part in a run as a real device.

    The process stays until the coordinator says that the run has ended. Started again after it was
    ended or killed, it goes on where it was. Its result is in its folder. With a plan whose devices
    stay (lumos up --stay), it then answers until it is ended, and again when it is started again.

    Parameters
    ----------
    folder
        Of the device: its part as lumos split writes it, manifest.json, run.json, its certificate
        and keys of lumos pki, and directory.json. Several: one process each, forked from this one.
    broker
        Address of the NATS server in place of the plan's, as tls://host:4222.
    """
    common.refuse("seed", "shards", because="run.json has the settings of the run")
    if not folder:
        raise UsageError("name the folder of a device")
    from lumos.deploy.federation import run_device, run_devices

    if len(folder) == 1:
        ended = run_device(folder[0], broker)
        if common.json:
            print_json({"folder": str(folder[0]), "ended": ended})
        return
    status = run_devices(folder, broker)
    if status:
        failure = RunFailed("a device did not come to the end of the run")
        failure.exit_status = status
        raise failure
    if common.json:
        print_json([{"folder": str(path), "ended": True} for path in folder])
