"""Narrow optional types where a test knows what is there."""

from typing import TypeVar

from scipy.sparse import csr_array

from lumos.ldp.bounds import Features, Sparse

T = TypeVar("T")


def present(value: T | None) -> T:
    """The value, which is not None."""
    assert value is not None
    return value


def sparse(features: "Features | None") -> Sparse:
    """The features of a graph that has sparse ones."""
    assert isinstance(features, csr_array)
    return features
