"""Certificates, requests, identities and the directory: what is signed, and what is refused."""

import json
import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from nacl.exceptions import CryptoError
from tests.deploy.participants import OVER

from lumos.deploy.identity import (
    Directory,
    Identity,
    Listed,
    ParticipantKeys,
    Validity,
    check_participant_certificate,
    fingerprint,
    new_tls_key,
    participant_certificate,
)
from lumos.deploy.pki import (
    FederationAuthority,
    NewKeys,
    make_federation,
    read_request,
    request_certificate,
)
from lumos.device.shard import COORDINATOR
from lumos.errors import InputError, UsageError


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def loaded(pki: Path) -> Directory:
    return Directory.load(pki / "directory.json", Identity.load(pki / "coordinator").authority)


@pytest.fixture
def own(tmp_path: Path) -> FederationAuthority:
    """A federation that a test may change."""
    return make_federation(tmp_path / "own", 2)


def test_private_keys_are_for_their_owner_only(pki: Path) -> None:
    private = [*pki.glob("*/key.pem"), *pki.glob("*/seal.key"), pki / "authority.key"]
    assert len(private) == 6 + 5 + 1
    assert {mode(file) for file in private} == {0o600}
    assert {mode(folder) for folder in [pki, *pki.glob("*/")]} == {0o700}
    assert sorted(file.name for file in (pki / "device-1").iterdir()) == [
        "authority.pem",
        "certificate.pem",
        "key.pem",
        "seal.key",
    ]
    assert sorted(file.name for file in (pki / "broker").iterdir()) == [
        "authority.pem",
        "certificate.pem",
        "key.pem",
    ]


def test_public_files_hold_no_private_key(pki: Path) -> None:
    secrets = [file.read_bytes() for file in pki.glob("*/seal.key")]
    public = (pki / "directory.json").read_bytes()
    public += b"".join(file.read_bytes() for file in pki.glob("**/*.pem") if file.name != "key.pem")
    assert b"PRIVATE" not in public
    assert not any(secret in public or secret.hex().encode() in public for secret in secrets)


def test_two_participants_seal_for_each_other_and_nobody_else(pki: Path) -> None:
    directory = loaded(pki)
    one, two, coordinator = (
        Identity.load(pki / name) for name in ("device-1", "device-2", "coordinator")
    )
    assert (one.participant, two.participant, coordinator.participant) == (1, 2, COORDINATOR)
    sealed = one.box(directory, 2).encrypt(b"body")
    assert two.box(directory, 1).decrypt(sealed) == b"body"
    with pytest.raises(CryptoError):
        coordinator.box(directory, 1).decrypt(sealed)
    assert one.box(directory, 2) is one.box(directory, 2)
    assert one.box(directory, COORDINATOR) is not one.box(directory, 2)
    assert repr(one) == "<Identity>"
    with pytest.raises(InputError, match="for itself"):
        one.box(directory, 1)


def test_a_certificate_says_who_and_until_when(own: FederationAuthority) -> None:
    end = datetime.now(UTC) + timedelta(hours=12)
    own.issue([5], Validity.lasting(timedelta(hours=12)))
    identity = Identity.load(own.folder / "device-5", participant=5)
    assert abs(identity.certificate.not_valid_after_utc - end) < timedelta(minutes=1)
    listed = own.directory.listed(5)
    assert listed.certificate == fingerprint(identity.certificate)
    assert listed.seal == own.directory.sealing_key(5).hex()
    with pytest.raises(InputError, match="is of device 5, not of device 6"):
        Identity.load(own.folder / "device-5", participant=6)
    with pytest.raises(UsageError, match="choose a shorter `valid`"):
        own.issue([5], Validity.lasting(timedelta(days=9999)))
    with pytest.raises(UsageError, match="longer than 0"):
        Validity.lasting(timedelta(0))


@pytest.mark.parametrize("name", ["key.pem", "seal.key"])
def test_a_key_that_others_may_read_is_refused(own: FederationAuthority, name: str) -> None:
    path = own.folder / "device-1" / name
    for open_mode in (0o640, 0o604, 0o660):
        path.chmod(open_mode)
        with pytest.raises(InputError, match="others may read this private key"):
            Identity.load(own.folder / "device-1")
    path.chmod(0o400)
    Identity.load(own.folder / "device-1")


def test_an_authority_whose_key_others_may_read_is_refused(own: FederationAuthority) -> None:
    (own.folder / "authority.key").chmod(0o644)
    with pytest.raises(InputError, match=r"authority\.key: others may read"):
        FederationAuthority.open(own.folder)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("key.pem", "is not the key of certificate.pem"),
        ("seal.key", "is not the key of certificate.pem"),
        ("certificate.pem", "is not the key of certificate.pem"),
    ],
)
def test_another_participants_file_is_refused(
    own: FederationAuthority, name: str, message: str
) -> None:
    target, source = (own.folder / participant / name for participant in ("device-1", "device-0"))
    target.write_bytes(source.read_bytes())
    with pytest.raises(InputError, match=message):
        Identity.load(own.folder / "device-1")


@pytest.mark.parametrize("name", ["key.pem", "seal.key", "certificate.pem", "authority.pem"])
def test_damaged_and_missing_files_are_named(own: FederationAuthority, name: str) -> None:
    path = own.folder / "device-1" / name
    for content in (b"", b"\0" * 31, b"x" * 100_000):
        path.write_bytes(content)
        with pytest.raises(InputError, match=name):
            Identity.load(own.folder / "device-1")
    path.unlink()
    with pytest.raises(InputError, match=f"{name}: cannot be read"):
        Identity.load(own.folder / "device-1")


def test_a_certificate_of_another_authority_is_refused(own: FederationAuthority, pki: Path) -> None:
    for name in ("certificate.pem", "key.pem", "seal.key"):
        (own.folder / "device-1" / name).write_bytes((pki / "device-1" / name).read_bytes())
    with pytest.raises(InputError, match="is not signed by this authority"):
        Identity.load(own.folder / "device-1")


def test_a_certificate_out_of_its_time_is_refused(own: FederationAuthority, pki: Path) -> None:
    with pytest.raises(InputError, match="the certificate of device 9 ended on"):
        Identity.load(pki / "device-9")
    now = datetime.now(UTC)
    own.issue([1], Validity(now + timedelta(hours=1), now + timedelta(hours=2)))
    with pytest.raises(InputError, match=r"begins on .* check the clock"):
        Identity.load(own.folder / "device-1")


def test_participants_cannot_sign_for_others(own: FederationAuthority) -> None:
    """A device that signs a certificate with its own key is no authority."""
    device = Identity.load(own.folder / "device-1")
    mallory = new_tls_key()
    forged = participant_certificate(
        ParticipantKeys(0, bytes(32)), mallory.public_key(), device.certificate, mallory,
        Validity.lasting(timedelta(days=1)),
    )  # fmt: skip
    with pytest.raises(InputError, match="is not signed by this authority"):
        check_participant_certificate(forged, device.authority)
    folder = own.folder / "device-1"
    (folder / "authority.pem").write_bytes((folder / "certificate.pem").read_bytes())
    with pytest.raises(InputError, match="is not the certificate of a federation authority"):
        Identity.load(folder)


def test_a_brokers_folder_is_no_participant(own: FederationAuthority) -> None:
    with pytest.raises(InputError, match="is not of one device"):
        Identity.load(own.folder / "broker")


def test_issuing_again_replaces_keys_in_the_directory(own: FederationAuthority) -> None:
    zero, before = Identity.load(own.folder / "device-0"), loaded(own.folder)
    old = Identity.load(own.folder / "device-1")
    own.issue([1])
    after, new = loaded(own.folder), Identity.load(own.folder / "device-1")
    assert after.serial == before.serial + 1
    assert after.digest != before.digest
    assert set(after.participants) == set(before.participants) == {COORDINATOR, 0, 1}
    assert after.sealing_key(0) == before.sealing_key(0)
    with pytest.raises(InputError, match="another certificate of device 1"):
        old.box(after, 0)
    sealed = zero.box(after, 1).encrypt(b"new")
    assert new.box(after, 0).decrypt(sealed) == b"new"
    with pytest.raises(CryptoError):
        old.box(before, 0).decrypt(sealed)


def test_a_changed_directory_is_refused(own: FederationAuthority) -> None:
    path = own.folder / "directory.json"
    content = json.loads(path.read_text())
    body = content["body"]
    body["participants"][0]["seal"], body["participants"][1]["seal"] = (
        body["participants"][1]["seal"],
        body["participants"][0]["seal"],
    )
    path.write_text(json.dumps(content, separators=(",", ":")))
    with pytest.raises(InputError, match=r"directory\.json: is not signed by this authority"):
        loaded(own.folder)
    for damaged in (b"", b"[]", b'{"signature":"zz","body":{}}', b"\xff"):
        path.write_bytes(damaged)
        with pytest.raises(InputError, match="is not a signed directory"):
            loaded(own.folder)


def test_a_directory_of_another_authority_is_refused(own: FederationAuthority, pki: Path) -> None:
    other = Identity.load(pki / "device-0").authority
    with pytest.raises(InputError, match="is not signed by this authority"):
        Directory.load(own.folder / "directory.json", other)


def test_a_signature_for_something_else_is_none(own: FederationAuthority) -> None:
    path = own.folder / "directory.json"
    body = path.read_text().split('"body":')[1].rstrip()[:-1]
    signature = own._key.sign(body.encode()).hex()
    path.write_text(f'{{"signature":"{signature}","body":{body}}}')
    with pytest.raises(InputError, match="is not signed by this authority"):
        loaded(own.folder)


@pytest.mark.parametrize("what", ["participant", "seal", "certificate", "tls_key"])
def test_a_directory_with_duplicates_is_refused(own: FederationAuthority, what: str) -> None:
    participants = dict(own.directory.participants)
    fields = {name: getattr(participants[0], name) for name in Listed.__struct_fields__}
    participants[0] = Listed(**{**fields, what: getattr(participants[1], what)})
    Directory(participants, 7).write(own.folder / "directory.json", own._key)
    with pytest.raises(InputError, match=f"two participants with the same {what}"):
        loaded(own.folder)


def test_who_has_ended_or_is_unknown_cannot_be_sealed_for(pki: Path) -> None:
    directory, identity = loaded(pki), Identity.load(pki / "device-0")
    with pytest.raises(InputError, match="the certificate of device 9 ended on"):
        identity.box(directory, 9)
    with pytest.raises(InputError, match="the directory has no '77'"):
        identity.box(directory, 77)


def test_an_authority_that_has_ended_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(Validity, "lasting", lambda *_: OVER)
        FederationAuthority.create(tmp_path / "pki")
    with pytest.raises(InputError, match="the certificate of the authority ended on"):
        FederationAuthority.open(tmp_path / "pki")
    certificate = x509.load_pem_x509_certificate((tmp_path / "pki/authority.pem").read_bytes())
    with pytest.raises(InputError, match="the certificate of the authority ended on"):
        Directory.load(tmp_path / "pki/directory.json", certificate)


def test_a_device_keeps_its_keys_and_asks_for_a_certificate(
    own: FederationAuthority, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    request = request_certificate(home, 1)
    asked, folder = own.issue_requested(request)
    assert asked.fingerprint == read_request(request).fingerprint
    assert sorted(file.name for file in folder.iterdir()) == ["authority.pem", "certificate.pem"]
    for file in folder.iterdir():
        (home / file.name).write_bytes(file.read_bytes())
    identity, directory = Identity.load(home, participant=1), loaded(own.folder)
    other = Identity.load(own.folder / "device-0")
    sealed = other.box(directory, 1).encrypt(b"body")
    assert identity.box(directory, 0).decrypt(sealed) == b"body"
    public = request.read_bytes()
    assert (home / "seal.key").read_bytes().hex().encode() not in public
    with pytest.raises(UsageError, match=r"key\.pem is there already"):
        request_certificate(home, 1)


def test_a_request_without_the_keys_is_refused(own: FederationAuthority, tmp_path: Path) -> None:
    victim, mallory = NewKeys(3), NewKeys(4)
    genuine, mine = json.loads(victim.request()), json.loads(mallory.request())
    stolen = NewKeys(4)
    stolen._signing = victim._signing  # to name the victim's sealing key in the request
    names_stolen = json.loads(stolen.request())
    cases = {
        "does not prove possession of the sealing key": [
            {**mine, "seal": genuine["seal"], "proof": genuine["proof"]},
            {**names_stolen, "seal": genuine["seal"], "proof": genuine["proof"]},
            {**mine, "proof": "00"},
        ],
        "is not a request": [{**mine, "pkcs10": ""}, {**mine, "seal": "01"}, {**mine, "x": 1}, {}],
    }
    path = tmp_path / "request.json"
    for message, requests in cases.items():
        for request in requests:
            path.write_text(json.dumps(request))
            with pytest.raises(InputError, match=message):
                own.issue_requested(path)
    assert set(own.directory.participants) == {COORDINATOR, 0, 1}


def test_a_request_that_names_a_sealing_key_which_it_does_not_prove_is_refused(
    own: FederationAuthority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    victim, mallory = NewKeys(3).public, NewKeys(4)
    with monkeypatch.context() as patch:
        patch.setattr(NewKeys, "public", ParticipantKeys(4, victim.seal))
        (tmp_path / "request.json").write_bytes(mallory.request())
    with pytest.raises(InputError, match="names another sealing key"):
        own.issue_requested(tmp_path / "request.json")


def test_the_keys_of_one_participant_are_not_certified_for_another(
    own: FederationAuthority, tmp_path: Path
) -> None:
    keys, path = NewKeys(3), tmp_path / "request.json"
    path.write_bytes(keys.request())
    own.issue_requested(path)
    keys.participant = 4
    path.write_bytes(keys.request())
    with pytest.raises(InputError, match="has a key of device 3"):
        own.issue_requested(path)
    assert 4 not in own.directory.participants


def test_wrong_participants_and_hosts_are_refused(own: FederationAuthority) -> None:
    with pytest.raises(UsageError, match="named twice"):
        own.issue([3, 3])
    for wrong in (-2, 10**18):
        with pytest.raises(UsageError, match="from 0 on"):
            own.issue([wrong])
    for host in ("", "a b", "-x", "x..y", "lumos://device/1", "*.example.org", "a" * 64):
        with pytest.raises(UsageError, match="`host` must be"):
            own.issue_broker([host])
    with pytest.raises(UsageError, match="`host`"):
        own.issue_broker([])
    with pytest.raises(UsageError, match="is there already"):
        FederationAuthority.create(own.folder)
    with pytest.raises(UsageError, match="has no authority"):
        FederationAuthority.open(own.folder / "device-9")
