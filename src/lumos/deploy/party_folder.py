"""The folder of one party of a run: what it is handed before the run begins, checked.

| file | holds |
|---|---|
| `run.json`, `manifest.json` | the plan of the run, and what is public of the graph |
| `certificate.pem`, `key.pem`, `seal.key`, `authority.pem` | who the party is |
| `directory.json` | everybody's public keys |
| `part-00017.safetensors` | of a device: its own part, as `lumos split` writes it |

What a party keeps for itself in a run is in the same folder (`device_folder`,
`coordinator_folder`).
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lumos.deploy.directory import DIRECTORY, Directory
from lumos.deploy.identity import Identity
from lumos.deploy.parties import described
from lumos.deploy.run_plan import FederationPlan, manifest_digest, read_plan
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, UsageError
from lumos.graph.parts.manifest import Manifest, read_manifest
from lumos.storage import PRIVATE, read_json

LOCK = "in-use"
RESULT = "result.json"
WIRE = "wire"
"""What is added to a result last: packets and bytes that passed."""


@dataclass(frozen=True, eq=False)
class PartyFolder:
    """What a party is handed; `PartyFolder.open` reads it."""

    path: Path
    plan: FederationPlan
    manifest: Manifest = field(repr=False)
    identity: Identity = field(repr=False)
    directory: Directory = field(repr=False)

    @property
    def party(self) -> int:
        """Whose it is."""
        return self.identity.party

    @property
    def total(self) -> int:
        """Number of devices."""
        return self.manifest.graph.devices

    @classmethod
    def open(cls, path: Path, *, coordinator: bool) -> "PartyFolder":
        """Read the folder of the coordinator, or of a device.

        Raises:
            InputError: a file is missing or damaged, or does not fit the others.
            UsageError: it is the folder of another kind of party.
        """
        identity = Identity.load(path)
        if (identity.party == COORDINATOR) != coordinator:
            command = "coordinator" if identity.party == COORDINATOR else "device"
            raise UsageError(
                f"{path}: is of {described(identity.party)}; type: lumos {command} {path}"
            )
        plan, manifest = read_plan(path), read_manifest(path)
        if plan.manifest != manifest_digest(manifest):
            raise InputError(f"{path}: run.json is of other parts than manifest.json; fetch both")
        simulated = plan.config.train.coins == "simulated"
        if simulated != (manifest.graph.simulation is not None):
            raise InputError(
                f"{path}: manifest.json of a simulation (with digests of all data) belongs to "
                "simulated randomness, and to nothing else; prepare the folders with lumos up"
            )
        devices = manifest.graph.devices
        if manifest.parts != devices:
            raise InputError(
                f"{path}: the graph is in {manifest.parts:,} parts; split it into {devices:,}, one "
                "for each device"
            )
        directory = Directory.load(path / DIRECTORY, identity.authority)
        identity.require_listed(directory)
        if identity.party >= devices:
            raise InputError(f"{path}: there are {devices:,} devices, from 0 on")
        missing = {COORDINATOR, *range(devices)} - directory.parties.keys()
        if missing:
            raise InputError(
                f"{path / DIRECTORY}: lacks {described(min(missing))}; issue a certificate for it"
            )
        return cls(path, plan, manifest, identity, directory)

    def ended_result(self) -> dict[str, Any] | None:
        """The result, where the run is over for this party; None while it is not."""
        path = self.path / RESULT
        if not path.exists():
            return None
        result: dict[str, Any] = read_json(path)
        return result if result.get("run") == self.plan.run and WIRE in result else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from being the same party.

        Raises:
            UsageError: one is.
        """
        handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.path}: another process is {described(self.party)} already; end it first"
                ) from None
            yield
        finally:
            os.close(handle)
