"""A whole federation in folders on one machine: one for each party, with nothing of others in it.

pki/                      the authority, and the broker's keys
operator/                 facts about the whole graph: the operator's own, never handed out
nats.conf  broker/        configuration and log of the broker
coordinator/              see `party_folder`
device-0/  device-1/  …
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lumos.deploy.broker_config import BrokerSettings, write_broker_config
from lumos.deploy.directory import DIRECTORY
from lumos.deploy.federation_authority import LOOPBACK, make_federation
from lumos.deploy.parties import folder_name
from lumos.deploy.run_plan import handed_out, new_plan, write_plan
from lumos.device.shard import COORDINATOR
from lumos.errors import UsageError
from lumos.graph.parts.manifest import MANIFEST, Partition, read_manifest, write_manifest
from lumos.graph.parts.part_source import PartSource
from lumos.graph.parts.parts_folder import refuse_taken
from lumos.graph.parts.stored_part import part_path
from lumos.storage import private_folder
from lumos.training.given_split import GivenSplit
from lumos.training.write_parts import write_parts

MOST_DEVICES = 2_000
"""On one machine."""
_MAX_PAYLOAD = 8 << 20
_EVERYWHERE = "0.0.0.0"  # noqa: S104 (every party shows a certificate)


@dataclass(frozen=True)
class FederationLayout:
    """The folders of a federation."""

    path: Path
    devices: int

    @property
    def broker_config(self) -> Path:
        """Configuration of the broker."""
        return self.path / "nats.conf"

    @property
    def coordinator(self) -> Path:
        """Folder of the coordinator."""
        return self.path / folder_name(COORDINATOR)

    def device(self, number: int) -> Path:
        """Folder of a device."""
        return self.path / folder_name(number)

    def device_folders(self) -> list[Path]:
        """Folders of all devices."""
        return [self.device(number) for number in range(self.devices)]

    @property
    def operator(self) -> Path:
        """Folder of the operator, with a manifest that is computed from all data."""
        return self.path / "operator"

    def hand_out_plan(self, settings: dict[str, Any], **options: Any) -> None:
        """Write the plan of a run and the manifest into every folder.

        Args:
            settings: as `lumos.train` takes them.
            options: as `new_plan` takes them.

        Raises:
            UsageError: the settings cannot be run by real devices.
        """
        manifest = handed_out(read_manifest(self.operator), settings)
        plan = new_plan(manifest, settings, **options)
        for folder in (self.coordinator, *self.device_folders()):
            write_manifest(folder, manifest)
            write_plan(folder, plan)


def lay_out(
    source: PartSource,
    path: Path,
    *,
    seed: int = 0,
    split: GivenSplit = None,
    task: Any = None,
    host: str | None = None,
) -> FederationLayout:
    """Split a graph, one part for each device; make keys for everybody; fill all folders.

    Args:
        source: the graph.
        path: a new or empty folder.
        seed: run seed.
        split: as `lumos.train` takes it.
        task: the only task that the parts are for.
        host: name or address of the broker's machine; None: everything is on this one.

    Raises:
        UsageError: the folder is not empty, or there are too many devices for one machine.
    """
    devices = len(source.about.ids)
    if devices > MOST_DEVICES:
        raise UsageError(
            f"{devices:,} devices are too many processes for one machine; up to {MOST_DEVICES:,} "
            "can be started, more are simulated by lumos train"
        )
    refuse_taken(path)
    private_folder(path)
    layout, parts, pki = FederationLayout(path, devices), path / "parts", path / "pki"
    write_parts(source, parts, Partition.equal(devices, devices), seed=seed, split=split, task=task)
    make_federation(pki, devices, LOOPBACK if host is None else (host, *LOOPBACK))
    for party in (COORDINATOR, *range(devices)):
        folder = path / folder_name(party)
        (pki / folder_name(party)).rename(folder)
        shutil.copyfile(pki / DIRECTORY, folder / DIRECTORY)
        if party != COORDINATOR:
            own = part_path(parts, party)
            own.rename(folder / own.name)
    private_folder(layout.operator)
    (parts / MANIFEST).rename(layout.operator / MANIFEST)
    shutil.rmtree(parts)
    address = BrokerSettings.host if host is None else _EVERYWHERE
    settings = BrokerSettings(host=address, max_payload=_MAX_PAYLOAD)
    write_broker_config(pki, layout.broker_config, settings)
    return layout
