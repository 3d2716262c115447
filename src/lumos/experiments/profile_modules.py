"""Modules of the profiles, which have the same shape."""

from collections.abc import Iterable

from lumos.training.profile import PROFILES


def profile_modules(names: Iterable[str], part: str) -> list[str]:
    """The module called `part` in the package of each of these profiles."""
    packages = (type(PROFILES[name]).__module__.rpartition(".")[0] for name in names)
    return [f"{package}.{part}" for package in packages]
