"""Two hosts, as two network namespaces: the lines of docs/scale.md work as they are written."""

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from lumos import train
from lumos.cli.main import run
from lumos.storage import read_arrays

PAGE = Path(__file__).parents[2] / "docs" / "scale.md"
ADDRESS = re.compile(r"--master-addr (\S+)")
HOSTS = {"first": 1, "second": 2}


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


def documented() -> dict[str, str]:
    """The command of each host."""
    found = re.findall(r"^(first|second)\$ (.+)$", PAGE.read_text("utf-8"), re.MULTILINE)
    return dict(found)


@pytest.fixture
def hosts() -> Iterator[dict[str, str]]:
    """Names of two namespaces with a wire between them, by host."""
    if shutil.which("ip") is None or os.geteuid() != 0:
        pytest.skip("network namespaces need root and the Debian package iproute2")
    names = {host: f"lumos-{os.getpid()}-{number}" for host, number in HOSTS.items()}
    found = ADDRESS.search(documented()["first"])
    assert found is not None
    net = found[1].rsplit(".", 1)[0]
    wires = {host: f"l{os.getpid() % 100_000}x{number}" for host, number in HOSTS.items()}
    try:
        try:
            for name in names.values():
                ip("netns", "add", name)
            ip("link", "add", wires["first"], "type", "veth", "peer", "name", wires["second"])
            for host, name in names.items():
                ip("link", "set", wires[host], "netns", name)
                ip("-n", name, "addr", "add", f"{net}.{HOSTS[host]}/24", "dev", wires[host])
                for device in (wires[host], "lo"):
                    ip("-n", name, "link", "set", device, "up")
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no network namespaces here: {error.stderr.decode().strip()}")
        yield names
    finally:
        for name in names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)


@pytest.mark.long  # in one host: test_gloo, and a real torchrun in test_failure
def test_the_documented_lines_work(hosts: dict[str, str], tmp_path: Path) -> None:
    split = ["split", "demo:60", str(tmp_path / "parts"), "--parts", "2", "--task", "classify"]
    assert run(split) == 0
    train("demo:60", out=tmp_path / "alone")
    running = []
    for host, line in documented().items():
        torchrun, *words = shlex.split(line)
        assert torchrun == "torchrun"
        start = ["ip", "netns", "exec", hosts[host], sys.executable, "-m", "torch.distributed.run"]
        running.append(
            subprocess.Popen(
                [*start, *words], cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
            )
        )
    assert [process.wait(timeout=240) for process in running] == [0, 0]
    for name in ("model.npz", "devices.npz"):
        one, other = (read_arrays(tmp_path / folder / name) for folder in ("alone", "runs/two"))
        assert one.keys() == other.keys()
        assert all(array.tobytes() == other[key].tobytes() for key, array in one.items())
