"""`lumos device` and `lumos coordinator`: run the participants of a deployment."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from lumos.cli.common import Common, console, placed, print_json, say
from lumos.errors import RunFailed, UsageError

COMMON = Common()


def device(
    *folder: Annotated[Path, placed("folder")],
    broker: Annotated[str | None, placed("broker", negative="")] = None,
    account: Annotated[Path | None, placed("account", negative="")] = None,
    common: Annotated[Common, Parameter(name="*")] = COMMON,
) -> None:
    """Run one device of a deployment, or several in a process each.

    The process stays until the coordinator says that the run has ended. Started again after it was
    ended or killed, it goes on where it was. Its result is in its folder. With a plan whose devices
    stay (lumos up --stay), it then answers until it is ended, and again when it is started again.

    Parameters
    ----------
    folder
        Folder of the device: its part as lumos split writes it, manifest.json, run.json, its
        certificate and keys of lumos pki, and directory.json. Several: one process each, forked
        from this one.
    broker
        Address of the NATS server in place of the plan's, as tls://host:4222.
    account
        Folder of the device's privacy account and of its owner's limits for life (limits.json). By
        default its own folder; for several devices, a folder for each of them in this one.
    """
    common.refuse_seed("run.json has the settings of the run")
    if not folder:
        raise UsageError("name the folder of a device")
    from lumos.deploy.local_federation import run_device, run_devices

    if len(folder) == 1:
        ended = run_device(folder[0], broker, account)
        if common.json:
            print_json({"folder": str(folder[0]), "ended": ended})
        return
    status = run_devices(folder, broker, account)
    if status:
        failure = RunFailed("a device did not come to the end of the run")
        failure.exit_status = status
        raise failure
    if common.json:
        print_json([{"folder": str(path), "ended": True} for path in folder])


# `lumos coordinator`: coordinate a run of real devices.


def coordinator(
    folder: Annotated[Path, placed("folder")],
    /,
    *,
    broker: Annotated[str | None, placed("broker", negative="")] = None,
    status: Annotated[int | None, placed("status")] = None,
    common: Annotated[Common, Parameter(name="*")] = COMMON,
) -> None:
    """Run the coordinator of a deployment.

    The process stays until the run has ended. Started again after it was ended or killed, it goes
    on where it was. Its folder has the progress in status.json and the result in result.json.

    Parameters
    ----------
    folder
        Folder of the coordinator: manifest.json, run.json, its certificate and keys of lumos pki,
        and directory.json.
    broker
        Address of the NATS server in place of the plan's, as tls://host:4222.
    status
        Port of a status page on 127.0.0.1; 0 for a free one. Its address is printed.
    """
    common.refuse_seed("run.json has the settings of the run")
    from lumos.cli.screen import show_guarantees
    from lumos.deploy.plan import ParticipantFolder
    from lumos.deploy.processes import CoordinatorProcess

    opened = ParticipantFolder.open(folder, coordinator=True)
    result = CoordinatorProcess(
        opened, lambda line: say(f"coordinator: {line}"), broker=broker, status=status
    ).run()
    if result is None:
        say("coordinator: ended by a signal; the same command goes on")
        return
    if common.json:
        print_json(result)
        return
    screen = console()
    lost = ", ".join(f"{device} ({phase})" for device, phase in result["left_out"].items())
    screen.print(
        f"{result['devices']:,} devices, {result['sums']:,} sums in {result['seconds']:,.1f} s; "
        f"left out: {lost or 'nobody'}"
    )
    show_guarantees(result)
    screen.print(f"weights and result: {folder}")
