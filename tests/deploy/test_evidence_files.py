"""Files of evidence: true ones hold for anybody with the certificates, and no others."""

import base64
import json
import shutil
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.secagg.test_bounded import LIAR, OTHER, TOTAL, LiesAboutPairMasks, run
from tests.secagg.test_evidence import LIES, Keeps

import lumos
from lumos.cli.main import run as command
from lumos.deploy.evidence import check_evidence, copy_evidence, kept_evidence
from lumos.deploy.identity import AUTHORITY, DIRECTORY, CertifiedSignatures, Directory, Identity
from lumos.deploy.local_federation import FederationLayout, lay_out
from lumos.deploy.plan import read_plan
from lumos.deploy.state import CoordinatorFolder
from lumos.errors import InputError
from lumos.secagg import signing
from lumos.secagg.evidence import MAX_FILE, EvidenceFile, InvalidProof, WrongCommitment


class OwnKeys:
    """Signs with the certificate of each device, as if all were in this process."""

    def __init__(self, layout: FederationLayout) -> None:
        self.plan = read_plan(layout.coordinator).tag
        identities = [Identity.load(layout.device(number)) for number in range(TOTAL)]
        directory = Directory.load(layout.coordinator / DIRECTORY, identities[0].authority)
        self.signers = [CertifiedSignatures(one, directory, self.plan) for one in identities]

    def sign(self, device: int, digest: bytes) -> bytes:
        return self.signers[device].sign(device, digest)

    def check(self, device: int, digest: bytes, signature: bytes) -> bool:
        return self.signers[0].check(device, digest, signature)


def evidence(keys: OwnKeys, liar: Any) -> EvidenceFile:
    """What the coordinator of a run with a liar keeps."""
    with signing.within(keys):
        kept = run({LIAR: liar}).party.evidence[LIAR]
    return msgspec.structs.replace(kept, plan=keys.plan)


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> FederationLayout:
    """Folders of 14 devices, with certificates and a signed plan."""
    made = lay_out(lumos.load(f"demo:{TOTAL}"), tmp_path_factory.mktemp("federation") / "all")
    made.hand_out_plan({"aggregate": "secure", "epochs": 8, "encoder_epochs": 2})
    return made


@pytest.fixture(scope="module")
def keys(layout: FederationLayout) -> OwnKeys:
    return OwnKeys(layout)


@pytest.fixture(scope="module", params=[*LIES])
def true(request: pytest.FixtureRequest, keys: OwnKeys) -> EvidenceFile:
    return evidence(keys, request.param)


@pytest.fixture
def folder(layout: FederationLayout, tmp_path: Path, true: EvidenceFile) -> Path:
    """The coordinator's folder, with the public files and the evidence."""
    for name in (AUTHORITY, DIRECTORY, "run.json"):
        shutil.copyfile(layout.coordinator / name, tmp_path / name)
    CoordinatorFolder(tmp_path).keep_evidence(LIAR, true.packed())
    return tmp_path


def test_true_evidence_is_kept_listed_and_holds_for_anybody(
    folder: Path, true: EvidenceFile, layout: FederationLayout, capsys: Any
) -> None:
    files = kept_evidence(folder, [LIAR, OTHER], true.plan)
    assert files == {str(LIAR): f"evidence/device-{LIAR}.json"}
    assert kept_evidence(folder, [LIAR], bytes(32)) == {}  # of another run in the same folder
    (folder / "evidence" / f"device-{OTHER}.json").write_text("{}")  # of an earlier version
    assert kept_evidence(folder, [LIAR, OTHER], true.plan) == files
    path = folder / files[str(LIAR)]
    assert check_evidence(path, layout.device(OTHER)).device == LIAR
    assert command(["pki", "check-evidence", str(path), str(folder)]) == 0
    assert f"holds. Device {LIAR} lied" in capsys.readouterr().out
    copy_evidence(folder, folder / "run", files)  # the run folder has all that checks it
    copied = folder / "run" / "evidence"
    assert check_evidence(copied / path.name, copied).lie == true.lie


def test_an_edited_file_is_refused_in_one_line(
    folder: Path, true: EvidenceFile, capsys: Any
) -> None:
    path = folder / "edited.json"
    content = json.loads(true.packed())

    def refused(edited: dict[str, Any], why: str) -> None:
        path.write_text(json.dumps(edited))
        assert command(["pki", "check-evidence", str(path), str(folder)]) != 0
        printed = capsys.readouterr()
        assert why in printed.err
        assert len(printed.err.strip().splitlines()) == 1
        assert not printed.out

    nothing = f"device {LIAR} has not signed this, or what it signed is no lie"
    attempt, form, case = content["attempt"], content["attempt"]["form"], content["case"]
    for name, value in case.items():
        if isinstance(value, str) and name not in ("kind", "what"):
            wrong = bytearray(base64.b64decode(value))
            wrong[0] ^= 1
            edited = case | {name: base64.b64encode(wrong).decode()}
            refused(content | {"case": edited}, nothing)
    refused(content | {"attempt": attempt | {"form": form | {"width": 41}}}, nothing)
    refused(content | {"attempt": attempt | {"number": attempt["number"] + 1}}, nothing)
    for device in (OTHER, TOTAL, -1):
        why = f"{device} has not signed this" if device == OTHER else "proves nothing"
        refused(content | {"case": case | {"device": device}}, why)
    refused(content | {"format": "lumos evidence 1"}, "is no evidence of this version")
    refused(content | {"case": case | {"kind": "wishes"}}, "is no evidence of this version")
    refused(content | {"more": 1}, "is no evidence of this version")
    for name, huge in (
        ("width", 1 << 60),
        ("devices", 1 << 40),
        ("mask_neighbours", 0),
        ("bits", 72),
        ("bound", 1 << 63),
    ):
        refused(content | {"attempt": attempt | {"form": form | {name: huge}}}, nothing)
    path.write_bytes(bytes(MAX_FILE + 1))
    assert command(["pki", "check-evidence", str(path), str(folder)]) != 0
    assert "is larger than such a file can be" in capsys.readouterr().err


def test_evidence_of_one_run_does_not_count_in_another(
    folder: Path, true: EvidenceFile, layout: FederationLayout
) -> None:
    other = FederationLayout(layout.path, TOTAL)
    before = (layout.coordinator / "run.json").read_bytes()
    try:
        other.hand_out_plan({"aggregate": "secure", "epochs": 9, "encoder_epochs": 2})
        tag = read_plan(layout.coordinator).tag
        path = folder / "evidence" / f"device-{LIAR}.json"
        with pytest.raises(InputError, match=f"is of the run {true.plan.hex()[:12]}"):
            check_evidence(path, layout.coordinator)
        path.write_bytes(msgspec.structs.replace(true, plan=tag).packed())
        with pytest.raises(InputError, match="has not signed this"):
            check_evidence(path, layout.coordinator)
    finally:
        for folder_of in (layout.coordinator, *layout.device_folders()):
            (folder_of / "run.json").write_bytes(before)


@pytest.mark.parametrize("liar", LIES)
def test_nothing_of_an_honest_device_is_in_a_file(liar: Any) -> None:
    """No vector, proof or secret of another device, and no pair seed that the liar does not have.

    Whole pledges of others are hashes of random numbers.
    """
    party = run({LIAR: liar}, coordinator=Keeps).party
    file, attempt = party.evidence[LIAR], party.sent[0]
    values = b"".join(leaves(file.case)) + file.attempt.form.seed
    for device in set(attempt.bodies) - {LIAR}:
        assert attempt.bodies[device][:16] not in values
        if device in attempt.proofs:
            assert attempt.proof(device)[-16:] not in values
    for secret, _ in party.secrets.values():
        assert secret.astype("<u2").tobytes() not in values
    seeds = [given[at : at + 16] for given, _ in party.answers.values() for at in (0, 32, 64)]
    assert not any(seed in values for seed in seeds)


def leaves(value: Any) -> list[bytes]:
    """All bytes in a piece of evidence."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    if isinstance(value, list | tuple):
        return [part for one in value for part in leaves(one)]
    return [value] if isinstance(value, bytes) else []


def test_a_true_record_of_an_honest_device_is_refused(folder: Path, keys: OwnKeys) -> None:
    with signing.within(keys):
        party = run({LIAR: LiesAboutPairMasks}, coordinator=Keeps).party
    attempt, (secret, _) = party.sent[1], party.secrets[1]
    record, path = attempt.record(OTHER), folder / "framed.json"
    for case in (
        WrongCommitment.of(OTHER, record, secret),
        InvalidProof(OTHER, record, attempt.vector(OTHER), attempt.proof(OTHER)),
    ):
        path.write_bytes(EvidenceFile.of(case, attempt.facts, keys.plan).packed())
        with pytest.raises(InputError, match="what it signed is no lie"):
            check_evidence(path, folder)
