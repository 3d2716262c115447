"""Lumos: federated graph learning where every device is one vertex."""

__version__ = "0.1.0"
