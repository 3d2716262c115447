"""`lumos device`, `lumos coordinator` and `lumos up`: one clear line for every mistake."""

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.processes import laid_out

from lumos.cli.common import Common
from lumos.cli.main import run
from lumos.cli.up import how_to_ask, read_and_lay_out, show_result
from lumos.deploy.local_federation import (
    COORDINATOR_LOG,
    DEVICES_LOG,
    FederationLayout,
    LocalFederation,
)
from lumos.deploy.plan import ParticipantFolder
from lumos.errors import RunFailed
from lumos.graph.parts.manifest import read_manifest

DEVICES = 5


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory) -> FederationLayout:
    made = laid_out(f"demo:{DEVICES}", tmp_path_factory.mktemp("federation") / "all")
    made.hand_out_plan({"randomness": "seeded"})
    return made


def refused(capsys: pytest.CaptureFixture[str], *arguments: str, status: int = 2) -> str:
    assert run([*arguments]) == status
    out, errors = capsys.readouterr()
    assert out == ""
    (line,) = errors.splitlines()
    return str(line)


def test_a_folder_that_is_none(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "cannot be read" in refused(capsys, "device", str(tmp_path))
    assert "cannot be read" in refused(capsys, "coordinator", str(tmp_path))
    assert "name the folder" in refused(capsys, "device")


def test_a_folder_of_somebody_else(
    capsys: pytest.CaptureFixture[str], layout: FederationLayout
) -> None:
    line = refused(capsys, "device", str(layout.coordinator))
    assert line.endswith(f"is of the coordinator; type: lumos coordinator {layout.coordinator}")
    line = refused(capsys, "coordinator", str(layout.device(3)))
    assert line.endswith(f"is of device 3; type: lumos device {layout.device(3)}")


def test_a_plan_of_other_parts(
    capsys: pytest.CaptureFixture[str], layout: FederationLayout, tmp_path: Path
) -> None:
    other = laid_out("demo:6", tmp_path / "other")
    other.hand_out_plan({"randomness": "seeded"})
    manifest = layout.device(1) / "manifest.json"
    kept = manifest.read_bytes()
    manifest.write_bytes((other.device(1) / "manifest.json").read_bytes())
    assert "run.json is of other parts" in refused(capsys, "device", str(layout.device(1)))
    manifest.write_bytes(kept)


def test_two_processes_are_not_the_same_device(
    capsys: pytest.CaptureFixture[str], layout: FederationLayout
) -> None:
    from lumos.deploy.plan import ParticipantFolder

    with ParticipantFolder.open(layout.device(0), coordinator=False).locked():
        line = refused(capsys, "device", str(layout.device(0)))
    assert "another process is device 0 already" in line


@pytest.mark.parametrize(
    ("options", "line"),
    [
        (["--aggregate", "ideal"], "nobody may add up in the clear"),
        (["--profile", "paper", "--compare", "ideal"], "nobody may compare in the clear"),
        (["--deadline", "0.5"], "--deadline must be above 1 s, got 0.5"),
        (["--control"], "--control is an experiment of simulations"),
        (["--epochs", "1"], "--epochs"),
    ],
)
def test_what_real_devices_cannot_do(
    capsys: pytest.CaptureFixture[str], options: list[str], line: str
) -> None:
    assert line in refused(capsys, "up", f"demo:{DEVICES}", *options)


def test_a_taken_folder(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "something").write_text("here")
    assert "not empty" in refused(capsys, "up", "demo:5", "--out", str(tmp_path))


def test_a_part_holds_nothing_of_others(layout: FederationLayout) -> None:
    for number in range(DEVICES):
        parts = [file.name for file in layout.device(number).glob("part-*")]
        assert parts == [f"part-{number:05d}.safetensors"]
        seals = {
            (layout.device(other) / "seal.key").read_bytes()
            for other in range(DEVICES)
            if other != number
        }
        for file in layout.device(number).iterdir():
            content = file.read_bytes()
            assert not any(seal in content for seal in seals)
    assert not list(layout.path.rglob("observer*"))
    assert not list(layout.coordinator.glob("part-*"))


def test_folders_for_machines_of_their_own(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Nothing is started; every participant finds the server where it will be."""
    folder = tmp_path / "participants"
    words = ["up", "demo:5", "--prepare", "nats.example.org", "--out", str(folder), "--json"]
    assert run(words) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["broker"] == "tls://nats.example.org:4222"
    for participant, coordinator in (("coordinator", True), ("device-4", False)):
        opened = ParticipantFolder.open(folder / participant, coordinator=coordinator)
        assert opened.plan.broker == result["broker"]
    assert not (folder / "coordinator" / "part-00000.safetensors").exists()
    assert 'host: "0.0.0.0"' in (folder / "nats.conf").read_text()


def test_folders_for_machines_need_a_place(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["up", "demo:5", "--prepare", "nats.example.org"]) == 2
    assert "--prepare needs --out" in capsys.readouterr().err


@pytest.mark.parametrize("ones", [2, 1 << 18])
def test_how_features_are_stored_tells_nothing_of_them(tmp_path: Path, ones: int) -> None:
    """A graph of mostly zeros is stored sparse; the manifest of real devices must not say so."""
    x = np.zeros((4, 1 << 18), np.float32)
    x[:, :ones] = 1
    np.savez(tmp_path / "graph.npz", edges=[[0, 1], [1, 2], [2, 3]], x=x, y=[0, 1, 0, 1])
    laid = partial(
        read_and_lay_out, str(tmp_path / "graph.npz"), reading={}, split=None, common=Common()
    )
    place = tmp_path / "participants"
    layout = laid(settings={"randomness": "system"}, place=place)
    assert read_manifest(layout.operator).graph.sparse
    seeded = laid(settings={"randomness": "seeded"}, place=tmp_path / "seeded")  # a simulation
    assert read_manifest(seeded.operator).graph.sparse == (ones == 2)


def test_the_screen_has_the_estimate_with_its_error_and_the_cost_of_a_device(
    capsys: pytest.CaptureFixture[str],
) -> None:
    estimates = {"selected_accuracy": 0.812, "selected_accuracy_error": 0.034}
    result = {
        "graph": "mine",
        "devices": 300,
        "randomness": "system",
        "sums": 63,
        "seconds": 126.0,
        "seconds_between_sums": 1.9,
        "left_out": {},
        "wire_bytes_per_device": 1_040_000,
        "ledger_bytes_per_device": 520_000,
        "cpu_seconds_per_device": 0.66,
        "megabytes_per_device": None,
        "estimates": estimates,
        "max_workload": 0,
        "weights_sha256": "abc",
        "run": "runs/up",
    }
    show_result(result)
    said = capsys.readouterr().out
    assert "accuracy 81.2 ± 3.4 %\n" in said
    assert "1,040 kB sent and received (2.0 times what its ledger counts), 0.66 s of" in said
    assert "63 masked sums; all in 126.0 s, 1.90 s from one to the next\n" in said
    assert "lumos report runs/up" in said
    show_result({**result, "estimates": {**estimates, "selected_accuracy_error": 1.3}})
    assert "no estimate" in (said := capsys.readouterr().out)
    assert "standard error 130 points" in said
    assert "--with 0" in how_to_ask(Path("here"), "link", 20)


def test_owners_who_forbid_the_paper_are_named_on_the_screen(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By default limits allow nothing unprotected, so no device begins."""
    words = ["up", "demo:12", "--profile", "paper", "--balancer", "none", "--epochs", "1"]
    accounts = tmp_path / "accounts"
    assert run([*words, "--account", str(accounts), "--out", str(tmp_path / "run")]) == 1
    said = capsys.readouterr().err
    assert "no device is left: device-" in said
    assert "the plan is refused: it has --profile paper" in said
    assert "(limits.json); nothing was sent" in said
    assert not list(tmp_path.rglob("account.npz"))


class EndedProcess:
    """A process that has ended with a status; None: it runs."""

    def __init__(self, status: int | None) -> None:
        self.returncode = status

    def poll(self) -> int | None:
        return self.returncode


def test_one_device_that_refused_does_not_end_the_run_of_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All device processes have ended, one of them badly; the coordinator has not yet."""
    layout = FederationLayout(tmp_path, 2)
    federation = object.__new__(LocalFederation)
    processes = {COORDINATOR_LOG: EndedProcess(None), DEVICES_LOG: EndedProcess(2)}
    monkeypatch.setattr(federation, "_layout", layout, raising=False)
    monkeypatch.setattr(federation, "_processes", processes, raising=False)
    monkeypatch.setattr(federation, "_weigh", lambda: None, raising=False)
    lines = "lumos: device-0: the plan is refused: why\nlumos: a device did not come to the end\n"
    (tmp_path / DEVICES_LOG).write_text(lines)
    with pytest.raises(RunFailed, match="no device is left: device-0: the plan is refused: why"):
        federation.is_running()
    layout.device(1).mkdir(parents=True)
    (layout.device(1) / "result.json").write_text("{}")
    assert federation.is_running()
