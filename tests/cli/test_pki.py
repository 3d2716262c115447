"""`lumos pki`: its JSON, its files, and one line for every mistake."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lumos.cli.main import run
from lumos.deploy.identity import Directory, Identity
from lumos.device.shard import COORDINATOR


@pytest.fixture
def answer(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """Run a command with --json, and return its one JSON object."""

    def ask(*arguments: object) -> Any:
        assert run(["pki", *map(str, arguments), "--json"]) == 0
        return json.loads(capsys.readouterr().out)

    return ask


@pytest.fixture
def refusal(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command that is refused with status 2, and return its one line."""

    def ask(*arguments: object) -> str:
        assert run(["pki", *map(str, arguments)]) == 2
        out, err = capsys.readouterr()
        assert out == ""
        assert err.startswith("lumos: ")
        assert err.count("\n") == 1
        return err

    return ask


@pytest.fixture
def pki(answer: Callable[..., Any], tmp_path: Path) -> Path:
    answer("init", tmp_path / "pki")
    return tmp_path / "pki"


def listed(pki: Path) -> Directory:
    return Directory.load(pki / "directory.json", Identity.load(pki / "coordinator").authority)


def test_a_whole_federation(answer: Callable[..., Any], pki: Path, tmp_path: Path) -> None:
    result = answer(
        "issue", pki, "--broker", "--host", "example.org", "--host", "10.0.0.1", "--coordinator",
        "--device", "0-2", "--device", "5,17", "--valid", "12h",
    )  # fmt: skip
    names = ["coordinator", "device-0", "device-1", "device-2", "device-5", "device-17"]
    assert result["issued"] == ["broker", *names]
    assert (result["participants"], result["serial"]) == (6, 1)
    directory = listed(pki)
    assert set(directory.participants) == {COORDINATOR, 0, 1, 2, 5, 17}
    for name in names:
        identity = Identity.load(pki / name)
        assert identity.certificate.not_valid_after_utc.isoformat() == result["ends"]
    identity.box(directory, 5)
    config = tmp_path / "nats.conf"
    written = answer("nats-config", pki, "--out", config, "--port", "4333", "--listen", "0.0.0.0")  # noqa: S104
    assert written == {"path": str(config), "participants": 6, "serial": 1, "port": 4333}
    text = config.read_text()
    assert "port: 4333\n" in text
    assert "verify_and_map: true" in text
    assert text.count("{user: ") == 6


def test_issuing_again_replaces(answer: Callable[..., Any], pki: Path) -> None:
    answer("issue", pki, "--coordinator", "--device", "3")
    before = listed(pki)
    result = answer("issue", pki, "--device", "3")
    assert (result["participants"], result["serial"]) == (2, 2)
    assert listed(pki).sealing_key(3) != before.sealing_key(3)
    assert listed(pki).sealing_key(COORDINATOR) == before.sealing_key(COORDINATOR)


def test_a_device_that_keeps_its_keys(
    answer: Callable[..., Any], pki: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    asked = answer("request", home, "--device", "17")
    assert asked["participant"] == "device-17"
    before = {file.name: file.read_bytes() for file in home.iterdir()}
    result = answer("issue", pki, "--request", asked["path"])
    assert result["issued"] == ["device-17"]
    assert result["fingerprint"] == asked["fingerprint"]
    private = [before[name] for name in ("key.pem", "seal.key")]
    kept = [file.read_bytes() for file in pki.rglob("*") if file.is_file()]
    assert not any(secret in content for secret in private for content in kept)
    for name in ("certificate.pem", "authority.pem"):
        shutil.copy(pki / "device-17" / name, home)
    assert Identity.load(home).participant == 17


def test_lines_for_people(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    pki, home, config = (str(tmp_path / name) for name in ("pki", "home", "nats.conf"))
    for words, part in (
        (["init", pki], "a new authority"),
        (["issue", pki, "--broker", "--coordinator", "--device", "0-9"], "device-9 (12)"),
        (["request", home, "--device", "4"], "for device-4; fingerprint"),
        (["issue", pki, "--request", f"{home}/request.json"], "issued device-4"),
        (["nats-config", pki, "--out", config], f"nats-server -c {config}"),
    ):
        assert run(["pki", *words]) == 0
        out, err = capsys.readouterr()
        assert part in out
        assert (out.count("\n"), err) == (1, "")


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["issue", "PKI"], "nobody is named; give --device, --coordinator"),
        (["issue", "PKI", "--device", "x"], "--device must be a number, or a range as 0-59"),
        (["issue", "PKI", "--device=-3"], "--device must be a number"),
        (["issue", "PKI", "--device", "9-3"], "--device: 9-3 has none"),
        (["issue", "PKI", "--device", "0-999999999"], "more than 100,000"),
        (["issue", "PKI", "--device", "3", "--device", "0-9"], "named twice"),
        (["issue", "PKI", "--coordinator", "--host", "x"], "no effect without --broker"),
        (["issue", "PKI", "--broker", "--host", "a b"], "--host must be the name"),
        (["issue", "PKI", "--device", "3", "--valid", "1y"], "--valid must be days or hours"),
        (["issue", "PKI", "--device", "3", "--valid", "0d"], "--valid must be longer than 0"),
        (["issue", "PKI", "--device", "3", "--valid", "9999d"], "choose a shorter --valid"),
        (["issue", "PKI", "--device", "3", "--valid", "999999d"], "a shorter --valid"),
        (["issue", "PKI", "--request", "none.json"], "none.json: cannot be read"),
        (["issue", "PKI", "--request", "x", "--broker"], "leave out the others"),
        (["issue", "PKI", "--device", "3", "--seed", "1"], "--seed has no effect here"),
        (["issue", "none", "--device", "3"], "has no authority; make one with: lumos pki init"),
        (["request", "home"], "a request is for one participant"),
        (["request", "home", "--device", "1,2"], "a request is for one participant"),
        (["nats-config", "PKI"], "--out"),
        (["nats-config", "PKI", "--out", "x"], "the broker has no certificate"),
        (["nats-config", "PKI", "--out", "x", "--port", "0"], "--port must be"),
        (["init", "PKI"], "is there already; choose a new folder"),
    ],
)
def test_mistakes(
    refusal: Callable[..., str],
    pki: Path,
    words: list[str],
    line: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(pki.parent)
    assert line in refusal(*(str(pki) if word == "PKI" else word for word in words))
    assert sorted(file.name for file in pki.parent.iterdir()) == ["pki"]
    assert {file.name for file in pki.iterdir()} <= {
        "authority.key",
        "authority.pem",
        "directory.json",
        "directory.json.lock",
    }


def test_files_that_are_wrong(
    answer: Callable[..., Any], refusal: Callable[..., str], pki: Path, tmp_path: Path
) -> None:
    answer("issue", pki, "--broker", "--device", "0")
    directory = (pki / "directory.json").read_bytes()
    (pki / "directory.json").write_bytes(directory.replace(b'"serial":1', b'"serial":9'))
    assert "is not signed by this authority" in refusal("issue", pki, "--device", "1")
    assert "is not signed" in refusal("nats-config", pki, "--out", tmp_path / "x")
    (pki / "directory.json").write_bytes(directory)
    (tmp_path / "request.json").write_text("{}")
    line = refusal("issue", pki, "--request", tmp_path / "request.json")
    assert "is not a request for a certificate" in line
    (pki / "authority.key").chmod(0o644)
    assert "others may read this private key" in refusal("issue", pki, "--device", "1")
    (pki / "authority.key").write_text("nonsense")
    (pki / "authority.key").chmod(0o600)
    assert "authority.key: is not an Ed25519 private key" in refusal("issue", pki, "--broker")
