"""Parts of small graphs, the settings of short runs, and three devices with a running broker."""

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from tests.deploy.participants import OVER, SERVER

from lumos.deploy.broker import Broker, write_broker_config
from lumos.deploy.pki import FederationAuthority, make_federation
from lumos.graph import Graph, load
from lumos.graph.parts import PartsFolder
from lumos.graph.parts.manifest import equal_bounds
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
    loaded = load(graph)
    return write_parts(loaded, folder, equal_bounds(loaded.devices, loaded.devices), seed=0)


@pytest.fixture(scope="session")
def twelve(tmp_path_factory: pytest.TempPathFactory) -> PartsFolder:
    return split_into_devices("demo:12", tmp_path_factory.mktemp("parts") / "twelve")


def few_words() -> Graph:
    """Return `demo:12` with 32 words: sessions of links are as long as there are words."""
    whole = load("demo:12")
    words = np.asarray(whole.features.todense())  # type: ignore[union-attr]
    return replace(whole, features=np.maximum.reduce(np.split(words[:, :576], 18, axis=1)))


@pytest.fixture(scope="session")
def few_words_parts(tmp_path_factory: pytest.TempPathFactory) -> PartsFolder:
    folder = tmp_path_factory.mktemp("parts") / "few words"
    return write_parts(few_words(), folder, equal_bounds(12, 12), seed=0)


@pytest.fixture(scope="session")
def short() -> Config:
    """A strict run with few epochs."""
    return Config.asked(aggregate="secure", encoder_epochs=2, propagated_labels=1, epochs=8)
