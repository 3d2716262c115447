"""`lumos up`: a federation of real devices on this machine."""

import shutil
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from lumos.cli.common import Common, print_json, say
from lumos.cli.option_groups import placed
from lumos.cli.options import AS_IT_IS, Reading, given
from lumos.cli.termination import ended_in_order
from lumos.cli.train import run_options
from lumos.cli.up_screen import show_result, shown_status
from lumos.deploy.broker import BrokerSettings
from lumos.deploy.federation import FederationLayout, LocalFederation, lay_out
from lumos.deploy.plan import refuse_settings
from lumos.errors import UsageError
from lumos.graph.parts.chosen_source import chosen_source
from lumos.graph.parts.parts_writer import refuse_taken
from lumos.storage import private_folder, write_json
from lumos.training.given_split import reading_of

if TYPE_CHECKING:
    Options = Any
else:
    Options = run_options("UpOptions", aggregate="secure", coins="system")

COMMON, NOTHING = Common(), Options()
_POLL = 0.1
_RESULT = "result.json"


def up(
    graph: Annotated[str, placed("graph")],
    /,
    *,
    options: Annotated[Options, Parameter(name="*")] = NOTHING,
    reading: Annotated[Reading, Parameter(name="*")] = AS_IT_IS,
    split: Annotated[str | None, placed("split")] = None,
    deadline: Annotated[float, placed("deadline")] = 60.0,
    out: Annotated[Path | None, placed("out")] = None,
    keep: Annotated[bool, placed("keep", negative="", show_default=False)] = False,
    stay: Annotated[bool, placed("stay", negative="", show_default=False)] = False,
    status: Annotated[int | None, placed("status")] = None,
    prepare: Annotated[str | None, placed("prepare")] = None,
    common: Common = COMMON,
) -> None:
    """Train with real devices on this machine: a process for each, over NATS, with certificates.

    Every party has a folder of its own with nothing of others in it. Sums are masked, comparisons
    secret. With --coins simulated, weights are those of lumos train --aggregate secure.

    Parameters
    ----------
    graph
        demo, demo:60, facebook, twitch-ENGB, …, or a path.
    split
        As lumos train takes it.
    deadline
        Seconds after which a device that does not answer is left out.
    out
        A new folder for the result.
    keep
        Keep the folders of all parties in it too, or in a folder that is named at the end.
    stay
        Devices stay after the training until Ctrl-C, and answer: lumos predict FOLDER/device-17.
    status
        Port of the coordinator's status page, http://127.0.0.1:PORT.
    prepare
        Name or address of the machine of the NATS server: write the folders of all parties to
        --out, to be copied to their machines, and start nothing.
    """
    common.refuse("shards", because="every device is a process")
    settings = given(options)
    refuse_settings(settings, deadline=deadline)
    if out is not None:
        refuse_taken(out)
    if prepare is not None:
        _prepare(graph, settings, given(reading), split, deadline, prepare, out, stay, common)
        return
    with ended_in_order():
        _run(graph, settings, given(reading), split, deadline, out, keep, stay, status, common)


def _run(
    graph: str,
    settings: dict[str, Any],
    reading: dict[str, Any],
    split: str | None,
    deadline: float,
    out: Path | None,
    keep: bool,
    stay: bool,
    status: int | None,
    common: Common,
) -> None:
    """Train, and put away what is not to be kept, however it ends."""
    place = Path(tempfile.mkdtemp(prefix="lumos-up-")) if out is None else out / "parties"
    try:
        federation = LocalFederation(
            _laid_out(graph, settings, reading, split, place, common),
            settings,
            deadline,
            stay=stay,
            status=status,
        )
        began = time.monotonic()
        with federation:
            task = settings.get("task", "classify")
            result = {"graph": graph, "task": task, **_trained(federation)}
            result["seconds_in_all"] = round(time.monotonic() - began, 3)
            if out is not None:
                write_json(out / _RESULT, result, private=True)
            if keep or stay:
                result["parties"] = str(place)
            if common.json:
                print_json(result)
            else:
                show_result(result)
            while stay and federation.devices_run():
                time.sleep(_POLL)
    finally:
        if not keep:
            shutil.rmtree(place, ignore_errors=True)


def _laid_out(
    graph: str,
    settings: dict[str, Any],
    reading: dict[str, Any],
    split: str | None,
    place: Path,
    common: Common,
    host: str | None = None,
) -> FederationLayout:
    """Folders of all parties."""
    private_folder(place)
    opened = chosen_source(
        graph,
        data_dir=common.data_dir,
        features=True,
        whole=False,
        scratch=place,
        options={**reading_of(split), **reading},
    )
    task = settings.get("task", "classify")
    with opened as source:
        return lay_out(source, place, seed=common.seed, split=split, task=task, host=host)


def _prepare(
    graph: str,
    settings: dict[str, Any],
    reading: dict[str, Any],
    split: str | None,
    deadline: float,
    host: str,
    out: Path | None,
    stay: bool,
    common: Common,
) -> None:
    """Write the folders of all parties, for machines of their own."""
    if out is None:
        raise UsageError("--prepare needs --out: a new folder for those of all parties")
    layout = _laid_out(graph, settings, reading, split, out, common, host)
    broker = f"tls://{host}:{BrokerSettings().port}"
    layout.hand_out_plan(settings, deadline=deadline, broker=broker, stay=stay)
    result = {"parties": str(out), "devices": layout.devices, "broker": broker}
    if common.json:
        print_json(result)
        return
    say(
        f"folders of the coordinator and {layout.devices:,} devices: {out}\n"
        f"on {host}, with the folder pki: lumos pki nats-config pki --out nats.conf "
        "--listen 0.0.0.0; nats-server -c nats.conf\n"
        "on their machines: lumos coordinator coordinator; lumos device device-0; …"
    )


def _trained(federation: LocalFederation) -> dict[str, Any]:
    """Show how the run goes on; its result."""
    with shown_status() as show:
        while federation.is_running():
            status = federation.status()
            if status is not None:
                show(status)
            time.sleep(_POLL)
    return federation.result()
