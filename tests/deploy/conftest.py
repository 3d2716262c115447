"""A federation of three devices with a running broker, for all tests of a module."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.deploy.parties import OVER, SERVER

from lumos.deploy.broker import Broker
from lumos.deploy.broker_config import write_broker_config
from lumos.deploy.federation_authority import FederationAuthority, make_federation


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
