"""Plans: signed by the operator, within the owner's limits, the same at all who run together."""

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
from tests.deploy.processes import laid_out

import lumos
from lumos.cli.main import run
from lumos.deploy.identity import DIRECTORY
from lumos.deploy.local_federation import FederationLayout
from lumos.deploy.pki import FederationAuthority
from lumos.deploy.plan import (
    FederationPlan,
    ParticipantFolder,
    new_plan,
    planned_run,
    read_plan,
    refuse_plan,
    write_plan,
)
from lumos.deploy.processes import DeviceProcess
from lumos.deploy.protocol.frames import RUN_TAG, Data
from lumos.deploy.protocol.job import SETUP, TrainingJob
from lumos.deploy.virtual import RUN, Federation
from lumos.device.randomness import DeviceKeys
from lumos.device.shard import COORDINATOR
from lumos.errors import BudgetExceeded, InputError
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import Manifest, read_manifest
from lumos.ldp.account import (
    EDGE,
    FEATURES,
    LABEL,
    LIMITS,
    MAX_RUN_EPSILON,
    NORM,
    RECORD,
    AccountLimits,
    PrivacyAccount,
)
from lumos.secagg import mask_graph
from lumos.secagg.topics import MASKED
from lumos.training.config import Config
from lumos.training.profile import PROFILES
from lumos.training.split import Role

DEVICES = 12
SHORT: dict[str, Any] = {"encoder_epochs": 2, "propagated_labels": 1, "epochs": 8}
REAL: dict[str, Any] = {"aggregate": "secure", "randomness": "system", **SHORT}
OTHER = b"o" * RUN_TAG
"""Tag of another plan."""


# One victim gets a plan with ε = 20 for its label and little noise; everybody else the good one.


def victim_of(parts: PartsFolder) -> int:
    """The first device whose label trains."""
    roles = [parts.part([device], "classify").roles[0] for device in range(DEVICES)]
    return roles.index(Role.TRAIN)


class Victim:
    """A run in which one device has other settings, and the topics of what others got from it."""

    def __init__(self, parts: PartsFolder, tag: bytes) -> None:
        self.number = victim_of(parts)
        weak = Config.asked(**REAL, label_epsilon=20.0, feature_epsilon=500.0)
        self.received: set[str] = set()
        self.federation = Federation(
            parts, Config.asked(**REAL), given={self.number: (tag, weak)}, on_arrival=self._note
        )
        self.federation.run(limit=600.0)
        self.ended = str(self.federation.device(self.number).ended)

    def _note(self, _now: float, sender: int, _receiver: int, frames: list[Any]) -> None:
        if sender == self.number:
            self.received |= {f.topic for f in frames if isinstance(f, Data) and f.count}


TOLD = {"strict/symbol", MASKED.name}
"""Topics with the victim's randomized label, and with its vectors under masks and noise."""


def test_before_plans_were_compared_nobody_noticed_a_victim(twelve: PartsFolder) -> None:
    """The broken twin: its tag does not depend on the plan. The run ends well, the label is out."""
    attack = Victim(twelve, RUN)
    assert attack.ended == attack.federation.coordinator.ended == ""
    assert attack.received >= TOLD


def test_a_victim_of_another_plan_tells_nothing(twelve: PartsFolder) -> None:
    attack = Victim(twelve, OTHER)
    assert attack.ended
    assert not attack.received & TOLD
    assert set(attack.federation.coordinator.left_out) == {attack.number}


def test_packets_alone_keep_plans_apart(
    twelve: PartsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if the coordinator had held a draw for the victim alone: nobody answers it, so it stops.

    The others end their run without it.
    """
    bound, seed = mask_graph.commitments, mask_graph.seed_of
    monkeypatch.setattr(mask_graph, "commitments", lambda *given: bound(*given[:4]))
    monkeypatch.setattr(mask_graph, "seed_of", lambda *given: seed(*given[:2]))
    attack = Victim(twelve, OTHER)
    federation = attack.federation
    assert "too few mask neighbours sent a public key" in attack.ended
    assert not attack.received & TOLD
    assert federation.coordinator.ended == ""
    assert set(federation.coordinator.left_out) == {attack.number}
    line = "a packet is of another run, or of other participants; dropped"
    assert f"device {attack.number}: {line}" in federation.lines


def test_the_draw_alone_keeps_plans_apart(
    twelve: PartsFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As if packets had no tag: contributions of another plan open no commitment."""
    monkeypatch.setattr(Federation, "tag", lambda *_ends: RUN)
    attack = Victim(twelve, OTHER)
    assert "setup: the list of a draw" in attack.ended
    assert not attack.received & TOLD


def noise_of(parts: PartsFolder, plan: bytes, randomness: str) -> np.ndarray:
    """The words that the noise of device 3 is made of, with one secret under different plans."""
    config = Config.asked(**{**REAL, "randomness": randomness})
    part, keys = parts.part([3], "classify"), DeviceKeys(bytes(32), plan)
    job = TrainingJob(parts.manifest, config, part, keys, plan=plan)
    job.program(SETUP)
    return job.shard.randomness.words(np.arange(1), "noise", 0, 16)


def test_a_changed_plan_draws_other_noise_from_the_same_secret(twelve: PartsFolder) -> None:
    """Otherwise two sums under the same noise show the difference of two vectors."""
    one, again, other = (noise_of(twelve, plan, "system") for plan in (RUN, RUN, OTHER))
    assert np.array_equal(one, again)
    assert not np.intersect1d(one, other).size
    one, other = (noise_of(twelve, plan, "seeded") for plan in (RUN, OTHER))
    assert np.array_equal(one, other)  # the simulation's, which has no plan


# Signatures.


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> FederationLayout:
    layout = laid_out(f"demo:{DEVICES}", tmp_path_factory.mktemp("plans") / "all")
    layout.hand_out_plan(SHORT, issued=1000.0)
    return layout


@pytest.fixture
def device(made: FederationLayout, tmp_path: Path) -> Path:
    """Return a copy of the folder of device 0, with a plan of t = 1000 s."""
    return Path(shutil.copytree(made.device(0), tmp_path / "device-0"))


def authority_of(made: FederationLayout) -> FederationAuthority:
    return FederationAuthority.open(made.path / "pki")


def changed(plan: FederationPlan, **settings: Any) -> FederationPlan:
    return msgspec.structs.replace(plan, settings={**plan.settings, **settings})


def refused_line(folder: Path, capsys: pytest.CaptureFixture[str], status: int = 2) -> str:
    """Start a device, which ends before it connects to anybody; return its one line."""
    capsys.readouterr()
    assert run(["device", str(folder)]) == status
    (line,) = capsys.readouterr().err.splitlines()
    assert not (folder / "secret.key").exists()
    return str(line)


def test_a_plan_that_the_operator_did_not_sign_is_refused(
    made: FederationLayout, device: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, plan = device / "run.json", read_plan(device)
    good = file.read_bytes()
    # Changed in one character.
    file.write_bytes(good.replace(b'"deadline": 60.0', b'"deadline": 61.0'))
    assert "is not signed by this authority; fetch the plan again" in refused_line(device, capsys)
    # Not signed at all, as plans were before.
    file.write_bytes(msgspec.json.encode(plan))
    assert "is not a signed plan" in refused_line(device, capsys)
    # Signed by another key.
    write_plan(device, plan, FederationAuthority.create(tmp_path / "another"))
    assert "is not signed by this authority" in refused_line(device, capsys)
    # Signed by the operator, as something else.
    file.write_bytes((device / DIRECTORY).read_bytes())
    assert "is not signed by this authority" in refused_line(device, capsys)
    # Signed, with something in it that this version does not know.
    body = json.loads(good)["body"]
    signed = authority_of(made).sign(b"lumos plan 1\0", json.dumps({**body, "new": 1}).encode())
    file.write_bytes(signed)
    assert "damaged or of another version" in refused_line(device, capsys)
    file.write_bytes(good)
    assert ParticipantFolder.open(device, coordinator=False).plan == plan


def test_a_plan_that_was_changed_by_hand_is_signed_as_a_new_run(
    made: FederationLayout, device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file, before = device / "run.json", read_plan(device)
    file.write_text(file.read_text().replace('"deadline": 60.0', '"deadline": 90.0'))
    assert run(["pki", "sign-plan", str(made.path / "pki"), str(file)]) == 0
    after = read_plan(device)
    assert (after.deadline, after.settings) == (90.0, before.settings)
    assert after.run != before.run
    assert after.issued > before.issued
    file.write_text(file.read_text().replace('"secure"', '"ideal"'))
    assert run(["pki", "sign-plan", str(made.path / "pki"), str(file)]) == 2
    assert "nobody may add up in the clear" in capsys.readouterr().err
    file.write_text("{}")
    assert run(["pki", "sign-plan", str(made.path / "pki"), str(file)]) == 2
    assert "is no plan of this version" in capsys.readouterr().err


def test_everything_in_a_plan_is_in_its_tag(made: FederationLayout) -> None:
    plan = read_plan(made.device(0))
    others: dict[str, Any] = {
        "lumos_run": 3,
        "run": "00" * 16,
        "issued": 2.0,
        "manifest": "00",
        "seed": 1,
        "settings": {**plan.settings, "label_epsilon": 20.0},
        "deadline": 61.0,
        "beat": 2.0,
        "tick": 0.2,
        "tree_tick": 0.05,
        "broker": "tls://localhost:1",
        "stay": True,
    }
    assert set(others) == set(FederationPlan.__struct_fields__)
    tags = {msgspec.structs.replace(plan, **{name: value}).tag for name, value in others.items()}
    assert len(tags | {plan.tag}) == len(others) + 1
    assert read_plan(made.coordinator).tag == plan.tag
    assert len(plan.tag) == RUN_TAG


def test_an_older_plan_of_the_same_operator_is_refused(
    made: FederationLayout, device: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also in a new folder, if the owner names the folder of the account."""
    old = (device / "run.json").read_bytes()
    plan = read_plan(device)
    begin(device)
    begin(device)  # the same run goes on
    newer = msgspec.structs.replace(plan, issued=2000.5, run="11" * 16)
    write_plan(device, newer, authority_of(made))
    begin(device)
    (device / "run.json").write_bytes(old)
    line = refused_line(device, capsys)
    assert "it is 1,000 s older than the last plan of this operator" in line
    kept = tmp_path / "account"
    kept.mkdir()
    shutil.copyfile(device / "account.npz", kept / "account.npz")
    with pytest.raises(InputError, match="older than the last plan"):
        begin(made.device(0), kept)
    # Other operators have plans of their own.
    account = PrivacyAccount(kept)
    account.begin_plan("another operator", 10.0)
    with pytest.raises(InputError, match="older than the last plan"):
        account.begin_plan("another operator", 9.0)


def begin(folder: Path, account: Path | None = None) -> None:
    """Check the plan, as a device does before it begins a run."""
    opened = ParticipantFolder.open(folder, coordinator=False)
    DeviceProcess(opened, lambda _line: None, account=account)._check_plan()


# The owner's limits.


def plan_of(manifest: Manifest, **settings: Any) -> FederationPlan:
    return new_plan(manifest, settings)


def test_a_plan_states_what_the_table_of_guarantees_says(twelve: PartsFolder) -> None:
    """The same numbers as in the table of the simulation, at the largest role."""
    planned = planned_run(plan_of(twelve.manifest), twelve.manifest, 1e-5)
    table = {
        row["about"]: [row[role] for role in ("training devices", "validation devices")]
        for row in lumos.train("demo:12").guarantees
    }
    rows = {
        LABEL: "label replaced",
        FEATURES: "features replaced",
        RECORD: "record replaced",
        NORM: "contribution to the sums zeroed",
        EDGE: "edge added or removed",
    }
    for question, about in rows.items():
        printed = [float(cell.strip("(ε= ").split(",")[0]) for cell in table[about]]
        assert planned.epsilon[question] == pytest.approx(max(printed), rel=1e-2)
        assert planned.epsilon[question] <= max(printed) * (1 + 1e-9)
        assert planned.epsilon[question] < MAX_RUN_EPSILON[question]
    assert planned.noise > AccountLimits().min_noise


@pytest.mark.parametrize(
    ("settings", "limits", "line"),
    [
        ({}, {}, ""),
        ({"participation": "all"}, {}, ""),
        ({"scaling": "size", "signs": "signed"}, {}, ""),
        ({"tree_network": True}, {}, ""),
        ({"label_epsilon": 20.0}, {}, "ε = 20 at δ = 1e-05 about one label"),
        ({"feature_epsilon": 12.0}, {}, "ε = 12 at δ = 1e-05 about one features"),
        ({"propagated_epsilon": 9.0}, {}, "about one edge"),
        ({"delta": 0.01}, {}, "about one features"),
        ({"protect": "none"}, {}, "no guarantee about one features"),
        ({"randomness": "seeded"}, {}, "no guarantee about one label"),
        ({"task": "link"}, {}, "no guarantee about one edge"),
        ({"task": "link"}, {"run_epsilon": {"edge": float("inf")}}, ""),
        ({"profile": "paper"}, {}, "it has `profile='paper'`"),
        ({"profile": "paper"}, {"profiles": ["strict", "paper"]}, "no guarantee about one label"),
        ({}, {"min_devices": 13}, "it is for 12 devices, and the owner's limit `min_devices` is"),
        ({}, {"min_noise": 0.6}, "noise of 0.559 times"),
        ({}, {"run_epsilon": {"record": 10.9}}, "ε = 11 at δ = 1e-05 about one record"),
        ({}, {"run_epsilon": {"record": 11.0}}, ""),
    ],
)
def test_the_owners_limits_of_a_plan(
    settings: dict[str, Any], limits: dict[str, Any], line: str, twelve: PartsFolder
) -> None:
    """They depend on the plan and public facts; a refusal is one line that names the limit."""
    manifest = twelve.manifest
    if settings.get("randomness") != "seeded":
        manifest = manifest.public(signed="signs" in settings, bounded="scaling" not in settings)
    plan = plan_of(manifest, **settings)
    if not line:
        refuse_plan(plan, manifest, AccountLimits(**limits))
        return
    with pytest.raises(BudgetExceeded) as said:
        refuse_plan(plan, manifest, AccountLimits(**limits))
    assert line in str(said.value)
    assert "owner's limit" in str(said.value)
    assert "\n" not in str(said.value)
    refuse_plan(plan, manifest, AccountLimits.none([*PROFILES]))


def test_a_device_refuses_a_signed_plan_beyond_the_limits_before_it_connects(
    made: FederationLayout, device: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = changed(read_plan(device), label_epsilon=20.0)
    write_plan(device, plan, authority_of(made))
    line = refused_line(device, capsys, status=1)
    assert "the plan is refused: it has ε = 20 at δ = 1e-05 about one label" in line
    assert "the owner's limit `run_epsilon label` is 4 (limits.json)" in line
    assert not (device / "account.npz").exists()
    # Whoever allows it by name takes part.
    (device / LIMITS).write_text(
        json.dumps({"run_epsilon": {"label": 20, "record": 40}, "lifetime_epsilon": 20})
    )
    begin(device)
    assert read_manifest(device).graph.devices == DEVICES


# Deployments equal simulations, plan or not.


def test_a_run_in_which_all_devices_take_part_ends_with_the_simulations_weights(
    twelve: PartsFolder, short: Config
) -> None:
    config = replace(
        short,
        profile_settings=replace(short.profile_settings, participation="all"),
        train=replace(short.train, epochs=9),
    )
    simulated = lumos.train("demo:12", config)
    federation = Federation(twelve, config)
    federation.run()
    for participant in (COORDINATOR, *range(DEVICES)):
        found = federation.participants[participant].job.trainer.state_dict("model")
        for name, array in simulated.model.weights.items():
            assert np.array_equal(found[name], array), (participant, name)
