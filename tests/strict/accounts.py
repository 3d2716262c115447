"""Reading privacy accounts in tests."""

from pathlib import Path

import numpy as np

from lumos.ldp.account import FILE, PROPAGATED, PrivacyAccount
from lumos.storage import read_arrays


def account_in(folder: Path) -> PrivacyAccount:
    """The account of all devices that are in the file."""
    return PrivacyAccount(folder, read_arrays(folder / FILE)["ids"].tolist())


def totals(folder: Path, kind: str = PROPAGATED) -> dict[str, float]:
    """By id, what an account has of a kind."""
    account = account_in(folder)
    ids = read_arrays(account.path)["ids"].tolist()
    return dict(zip(ids, account.spent(kind).tolist(), strict=True))


def amounts(folder: Path, kind: str = PROPAGATED) -> np.ndarray:
    """[devices] the same, for graphs whose ids are 0 … n - 1 in the order of the file."""
    return account_in(folder).spent(kind)


def content(folder: Path) -> bytes:
    """The bytes of the file."""
    return (folder / FILE).read_bytes()
