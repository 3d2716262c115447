"""Parts of small graphs, one for each device, and the settings of short runs."""

from pathlib import Path

import pytest

from lumos.graph.parts import PartsFolder
from lumos.graph.parts.chosen_source import chosen_source
from lumos.graph.parts.partition import Partition
from lumos.training.config import Config
from lumos.training.write_parts import write_parts


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
