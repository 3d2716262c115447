"""Parts of small graphs, the settings of short runs, and three devices with a running broker."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.parties import OVER, SERVER

from lumos.deploy.broker import Broker, write_broker_config
from lumos.deploy.pki import FederationAuthority, make_federation
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import Partition
from lumos.graph.parts.part_source import chosen_source
from lumos.training.config import Config
from lumos.training.write_parts import write_parts


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> FederationAuthority:
    """Devices 0, 1 and 2; and device 9, whose certificate has ended."""
    made = make_federation(tmp_path_factory.mktemp("federation") / "pki", 3)
    made.issue([9], OVER)
    return made


@pytest.fixture(scope="module")
def pki(authority: FederationAuthority) -> Path:
    return authority.folder


@pytest.fixture(scope="module")
def broker(pki: Path) -> Iterator[Broker]:
    config = pki.parent / "nats.conf"
    write_broker_config(pki, config)
    with Broker(config, pki.parent / "run", server=SERVER) as running:
        yield running


def split_into_devices(graph: str, folder: Path) -> PartsFolder:
    """Parts on disk, one for each device."""
    with chosen_source(
        graph, data_dir=None, features=True, whole=False, scratch=folder, options={}
    ) as source:
        partition = Partition.equal(len(source.about.ids), len(source.about.ids))
        return write_parts(source, folder, partition, seed=0)


@pytest.fixture(scope="session")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> PartsFolder:
    return split_into_devices("demo:12", tmp_path_factory.mktemp("parts") / "twelve")


@pytest.fixture(scope="session")
def short() -> Config:
    """A strict run with few epochs."""
    return Config.asked(aggregate="secure", encoder_epochs=2, opinions=1, epochs=8)
