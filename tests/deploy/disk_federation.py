"""A federation in virtual time whose participants keep what they need on a real disk."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lumos.crypto.entropy import KEY_BYTES
from lumos.deploy.protocol.frames import RUN_TAG
from lumos.deploy.state import SECRET, CoordinatorFolder, DeviceFolder
from lumos.deploy.virtual import RUN, Federation
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.graph import load
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
from lumos.training.write_parts import write_parts


def parts_of_devices(graph: str, folder: Path) -> PartsFolder:
    """Parts on disk, one for each device."""
    loaded = load(graph)
    return write_parts(loaded, folder, equal_bounds(loaded.devices, loaded.devices), seed=0)


@dataclass
class DiskFederation(Federation):
    """Every start of a participant reads its folder.

    Args:
        path: where the folders are.
        store: the store of devices.
    """

    path: Path = field(kw_only=True)
    store: type[DeviceFolder] = field(kw_only=True, default=DeviceFolder)

    def start(self, participant: int) -> None:
        stores: Any = self.stores
        if participant == COORDINATOR:
            coordinator: Any = CoordinatorFolder(self.path / "coordinator")
            self.coordinator_store = coordinator
        else:
            stores[participant] = self.store(self.folder_of(participant))
        super().start(participant)

    def keys(self, device: int) -> DeviceKeys:
        store: Any = self.stores[device]
        made: DeviceKeys = store.keys(RUN)
        self.secrets[device] = (self.folder_of(device) / SECRET).read_bytes()[RUN_TAG:][:KEY_BYTES]
        return made

    def folder_of(self, device: int) -> Path:
        """The folder of a device."""
        return self.path / f"device-{device}"
