"""The files that participants get before a run: the public plan, and the folder of each.

| file | holds |
|---|---|
| `run.json` | the plan of the run, signed by the authority; public, the same everywhere |
| `manifest.json` | public facts of the graph, by whose digest the plan names it |
| `certificate.pem`, `key.pem`, `seal.key`, `authority.pem` | who the participant is |
| `directory.json` | everybody's public keys |
| `part-00017.safetensors` | of a device: its own part, as `lumos split` writes it |

The state of a participant in a run is in the same folder (`lumos.deploy.state`).

**Signed plans.** The authority signs a plan as it signs the directory. The digest of the plan is
the tag of the run. It is in every packet under its seal, in the keys of flags, in the draw of the
mask graph, and in everything that a device expands its secret to. So participants with different
plans have no session, mask or sum in common, and a changed plan draws other noise. A simulation has
no plan: seeded randomness, which repeats one, does not depend on it.

A device also refuses a plan that exceeds the limits of its owner (`refuse_plan`), and one that is
older than the last plan of the same authority (`PrivacyAccount.begin_plan`).
"""

import fcntl
import math
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import msgspec

from lumos.crypto import entropy
from lumos.deploy.identity import (
    DIRECTORY,
    CertifiedSignatures,
    Directory,
    Identity,
    described,
    read_authority,
    read_small,
    signed_body,
)
from lumos.deploy.pki import FederationAuthority
from lumos.deploy.protocol.frames import RUN_TAG
from lumos.deploy.protocol.job import empty_part, problem_of
from lumos.deploy.protocol.rounds import TICK
from lumos.deploy.state import RESULT
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.errors import BudgetExceeded, InputError, LumosError, UsageError
from lumos.exchange.messages import Door
from lumos.graph.parts.manifest import Manifest, read_manifest
from lumos.ldp.account import LIMITS, QUESTIONS, TOLERANCE, AccountLimits
from lumos.runs.schema import plain
from lumos.storage import PRIVATE, one_line, read_json, write_bytes
from lumos.training.config import Config
from lumos.training.profile import PROFILES, PlannedRun

NAME = "run.json"
FORMAT = 2
_PURPOSE = b"lumos plan 1\0"
_RUN_ID = 16
BROKER = "tls://127.0.0.1:4222"
BEAT = 1.0
DEFAULTS = {"aggregate": "secure", "randomness": "system"}
"""Default settings of real devices."""


def with_defaults(settings: dict[str, Any]) -> dict[str, Any]:
    """Return settings with the defaults of real devices: with proofs, where sums have noise."""
    chosen = {**DEFAULTS, **settings}
    profile_settings = Config.of(**chosen).profile_settings
    if getattr(profile_settings, "protect", "none") == "noise":
        chosen.setdefault("proofs", True)
    return chosen


class FederationPlan(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The signed content of `run.json`."""

    lumos_run: int = FORMAT
    run: str
    """Random, in hexadecimal: two runs with the same settings have different plans."""
    issued: float
    """Time at which it was made, in seconds since 1970: a device begins no older plan later."""
    manifest: str
    """Digest of the manifest of the parts."""
    seed: int
    settings: dict[str, Any]
    """As `lumos.train` takes them; infinity as text."""
    deadline: float = 60.0
    """Seconds after which a device that does not answer is left out."""
    beat: float = BEAT
    """Seconds between two signs of life."""
    tick: float = TICK
    """Seconds between two ticks: a device sends to the coordinator at ticks only."""
    tree_tick: float = TICK
    """The same while trees are built."""
    broker: str = BROKER
    """Address of the broker."""
    stay: bool = False
    """True where devices stay after the training, and answer (`lumos predict`)."""

    @property
    def tag(self) -> bytes:
        """The tag of the run: the digest of everything in the plan."""
        body = msgspec.json.encode(self, order="sorted")
        return blake2b(body, digest_size=RUN_TAG, person=b"lumos plan tag").digest()

    @property
    def given(self) -> dict[str, Any]:
        """The settings, as `lumos.train` takes them."""
        return {
            name: math.inf if value == "inf" else value for name, value in self.settings.items()
        }

    @property
    def config(self) -> Config:
        """All settings of the run."""
        return Config.asked(**self.given)


def handed_out(manifest: Manifest, settings: dict[str, Any]) -> Manifest:
    """Return the manifest that the participants of a run get.

    Simulated randomness is named by facts about all data, so such a run keeps them. Otherwise
    nothing in the manifest is computed from the data; the settings say what features are like.

    Raises:
        UsageError: the data are not as the settings say.
    """
    config = Config.asked(**with_defaults(settings))
    if config.train.randomness == "seeded":
        return manifest
    chosen, facts = config.flat(), manifest.graph
    signs, scaling = chosen.get("signs", ""), chosen.get("scaling", "")
    if signs == "auto" and facts.signed:
        raise UsageError(
            "some features are negative, and what is public must not depend on them: say so with "
            "`signs='signed'`, or cut them off at 0 with `signs='nonnegative'`"
        )
    if scaling == "auto" and not facts.bounded:
        raise UsageError(
            "some features are not between -1 and 1, and what is public must not depend on them: "
            "say so with `scaling='size'` or `scaling='standard'`, or `scaling='none'`"
        )
    return manifest.public(signed=signs == "signed", bounded=scaling in ("auto", "none"))


def new_plan(
    manifest: Manifest,
    settings: dict[str, Any],
    *,
    deadline: float = 60.0,
    beat: float = BEAT,
    tick: float = TICK,
    tree_tick: float | None = None,
    broker: str = BROKER,
    stay: bool = False,
    issued: float | None = None,
) -> FederationPlan:
    """Return the plan of a new run over parts, one for each device; it is issued now by default.

    Raises:
        UsageError: the settings cannot be run by real devices.
    """
    refuse_settings(settings, deadline=deadline, beat=beat)
    chosen = with_defaults(settings)
    config = Config.asked(**chosen)
    usual, fitting = config.flat(), config.for_devices(manifest.graph.devices).flat()
    chosen |= {name: value for name, value in fitting.items() if value != usual[name]}
    tree_tick = tick if tree_tick is None else tree_tick
    for name, seconds in (("tick", tick), ("tree_tick", tree_tick)):
        if not 0 < seconds <= beat:
            raise UsageError(f"`{name}` must be above 0 and at most {beat:g} s, got {seconds:g}")
    return FederationPlan(
        run=entropy.draw(_RUN_ID).hex(),
        issued=time.time() if issued is None else issued,
        manifest=manifest_digest(manifest),
        seed=manifest.seed,
        settings=plain(chosen),
        deadline=deadline,
        beat=beat,
        tick=tick,
        tree_tick=tree_tick,
        broker=broker,
        stay=stay,
    )


def refuse_settings(settings: dict[str, Any], *, deadline: float, beat: float = BEAT) -> None:
    """Refuse what real devices cannot run.

    Raises:
        UsageError: they cannot.
    """
    config = Config.asked(**with_defaults(settings))
    if config.train.aggregate != "secure":
        raise UsageError("real devices need `aggregate='secure'`: nobody may add up in the clear")
    if config.trees.compare != "secure":
        raise UsageError("real devices need `compare='secure'`: nobody may compare in the clear")
    if config.train.control:
        raise UsageError("`control` is an experiment of simulations; leave it out")
    if settings.get("account") is not None:
        raise UsageError(
            "a plan has no `account`: each device keeps its own, with the limits of its owner; "
            "leave it out, or give it to lumos device"
        )
    if not 0 < beat < deadline:
        raise UsageError(f"`deadline` must be above {beat:g} s, got {deadline:g}")


def manifest_digest(manifest: Manifest) -> str:
    """Return the digest by which participants check that they have parts of the same graph."""
    return blake2b(msgspec.json.encode(manifest, order="sorted"), digest_size=32).hexdigest()


def write_plan(path: Path, plan: FederationPlan, authority: FederationAuthority) -> None:
    """Sign a plan, and write its file; `run.json`, if the path is a folder."""
    body = msgspec.json.format(msgspec.json.encode(plan), indent=1)
    write_bytes(path / NAME if path.is_dir() else path, authority.sign(_PURPOSE, body))


def read_plan(folder: Path) -> FederationPlan:
    """Read `run.json` after checking the signature of the authority in the same folder.

    Raises:
        InputError: it is missing, not signed by this authority, damaged or of another version.
    """
    path = folder / NAME
    _, key = read_authority(folder)
    try:
        body = signed_body(_PURPOSE, path.read_bytes(), key, "plan")
        plan = msgspec.json.decode(body, type=FederationPlan)
        if plan.lumos_run != FORMAT or not math.isfinite(plan.issued):
            raise ValueError("it is of another version of Lumos")
    except OSError as error:
        raise InputError(
            f"{path}: cannot be read ({error.strerror}); the plan of a run lies beside the parts"
        ) from None
    except LumosError as error:
        raise InputError(f"{path}: {error}") from None
    except (ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: is damaged or of another version ({one_line(error)})") from None
    return plan


def sign_again(path: Path, authority: FederationAuthority) -> FederationPlan:
    """Sign a plan that was changed by hand, in its file, as the plan of a new run.

    Raises:
        InputError: the file is no plan, or of another version.
        UsageError: real devices cannot run it.
    """
    try:
        body = msgspec.json.decode(read_small(path), type=dict[str, Any])
        plan = msgspec.convert(body.get("body", body), FederationPlan)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InputError(f"{path}: is no plan of this version ({one_line(error)})") from None
    refuse_settings(plan.given, deadline=plan.deadline, beat=plan.beat)
    new = {"run": entropy.draw(_RUN_ID).hex(), "issued": time.time()}
    plan = msgspec.structs.replace(plan, **new)
    write_plan(path, plan, authority)
    return plan


def planned_run(plan: FederationPlan, manifest: Manifest, delta: float) -> PlannedRun:
    """Return the most that a run by this plan would tell of any device; ε at `delta`."""
    config = plan.config
    if config.train.randomness == "seeded":  # everybody can compute noise and draws
        return PlannedRun(dict.fromkeys(QUESTIONS, math.inf), 0.0)
    problem = problem_of(manifest, config, empty_part(manifest))
    return config.profile.planned(problem, config, delta)


def refuse_plan(plan: FederationPlan, manifest: Manifest, limits: AccountLimits) -> None:
    """Refuse a plan that the owner of a device does not allow.

    It depends on public files and on the limits only: a refusal tells nothing about the device.

    Raises:
        BudgetExceeded: the plan exceeds a limit, which the message names.
    """
    config, devices = plan.config, manifest.graph.devices
    profile, allowed = config.train.profile, limits.profiles
    if allowed is None:
        allowed = [name for name in PROFILES if Door.OPEN not in PROFILES[name].doors]
    if profile not in allowed:
        raise _refused(f"it has `profile='{profile}'`", "profiles", ", ".join(allowed))
    if devices < limits.min_devices:
        raise _refused(f"it is for {devices:,} devices", "min_devices", f"{limits.min_devices:,}")
    planned = planned_run(plan, manifest, limits.delta)
    for question, epsilon in planned.epsilon.items():
        limit = limits.run_epsilon[question]
        if epsilon > limit * TOLERANCE:
            most = f"ε = {epsilon:.4g} at δ = {limits.delta:g}"
            says = most if math.isfinite(epsilon) else "no guarantee"
            raise _refused(
                f"it has {says} about one {question}", f"run_epsilon {question}", f"{limit:g}"
            )
    if planned.noise < limits.min_noise:
        raise _refused(
            f"its sums have noise of {planned.noise:.3g} times the largest vector of a device",
            "min_noise",
            f"{limits.min_noise:g}",
        )


def _refused(what: str, limit: str, value: str) -> BudgetExceeded:
    return BudgetExceeded(
        f"the plan is refused: {what}, and the owner's limit `{limit}` is {value} ({LIMITS}); "
        "nothing was sent"
    )


LOCK = "in-use"
WIRE = "wire"
"""The key that is added to a result last: packets and bytes sent and received."""


@dataclass(frozen=True, eq=False)
class ParticipantFolder:
    """The checked folder of a participant; `ParticipantFolder.open` reads it."""

    path: Path
    plan: FederationPlan
    manifest: Manifest = field(repr=False)
    identity: Identity = field(repr=False)
    directory: Directory = field(repr=False)

    @property
    def participant(self) -> int:
        """The participant that the folder belongs to."""
        return self.identity.participant

    @property
    def total(self) -> int:
        """Number of devices."""
        return self.manifest.graph.devices

    @property
    def signatures(self) -> CertifiedSignatures:
        """Signatures on messages of sums in this run."""
        return CertifiedSignatures(self.identity, self.directory, self.plan.tag)

    @property
    def nonces(self) -> DeviceKeys:
        """The coordinator's secret in this run: the same after a restart, and nobody else's."""
        signature = self.identity.sign(b"lumos nonces 1\0" + self.plan.tag)
        return DeviceKeys(blake2b(signature, digest_size=32).digest(), self.plan.tag)

    @classmethod
    def open(cls, path: Path, *, coordinator: bool) -> "ParticipantFolder":
        """Read the folder of the coordinator, or of a device.

        Raises:
            InputError: a file is missing or damaged, or does not fit the others.
            UsageError: it is the folder of another kind of participant.
        """
        identity = Identity.load(path)
        if (identity.participant == COORDINATOR) != coordinator:
            command = "coordinator" if identity.participant == COORDINATOR else "device"
            raise UsageError(
                f"{path}: is of {described(identity.participant)}; type: lumos {command} {path}"
            )
        plan, manifest = read_plan(path), read_manifest(path)
        if plan.manifest != manifest_digest(manifest):
            raise InputError(f"{path}: run.json is of other parts than manifest.json; fetch both")
        simulated = plan.config.train.randomness == "seeded"
        if simulated != (manifest.graph.simulation is not None):
            raise InputError(
                f"{path}: manifest.json of a simulation (with digests of all data) belongs to "
                "seeded randomness, and to nothing else; prepare the folders with lumos up"
            )
        devices = manifest.graph.devices
        if manifest.parts != devices:
            raise InputError(
                f"{path}: the graph is in {manifest.parts:,} parts; split it into {devices:,}, one "
                "for each device"
            )
        directory = Directory.load(path / DIRECTORY, identity.authority)
        identity.require_listed(directory)
        if identity.participant >= devices:
            raise InputError(f"{path}: there are {devices:,} devices, from 0 on")
        missing = {COORDINATOR, *range(devices)} - directory.participants.keys()
        if missing:
            raise InputError(
                f"{path / DIRECTORY}: lacks {described(min(missing))}; issue a certificate for it"
            )
        return cls(path, plan, manifest, identity, directory)

    def ended_result(self) -> dict[str, Any] | None:
        """Return the result, where the run is over for this participant; None while it is not."""
        path = self.path / RESULT
        if not path.exists():
            return None
        result: dict[str, Any] = read_json(path)
        return result if result.get("run") == self.plan.tag.hex() and WIRE in result else None

    @contextmanager
    def locked(self) -> Iterator[None]:
        """Keep other processes from being the same participant.

        Raises:
            UsageError: one is.
        """
        handle = os.open(self.path / LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise UsageError(
                    f"{self.path}: another process is {described(self.participant)} already; end "
                    f"it first"
                ) from None
            yield
        finally:
            os.close(handle)
