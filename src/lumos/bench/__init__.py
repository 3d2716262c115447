"""Ratios against the other way of doing it, both sides in one run: `lumos bench`.

One module per measurement, listed in `MEASUREMENTS`; `rows` has what a measurement returns,
`timing` lets two sides take turns, `machine` says what else the machine was doing.
"""

from lumos.bench.rows import Measurement
from lumos.registry import Registry

MEASUREMENTS: Registry[Measurement] = Registry(
    "measurement",
    {
        "layers": "lumos.bench.layers:measure",
        "balancers": "lumos.bench.balancer_search:measure",
        "compare": "lumos.bench.compare:measure",
        "sums": "lumos.bench.sums:measure",
        "endpoint": "lumos.bench.message_checks:measure",
        "ranks": "lumos.bench.ranks:measure",
        "scale": "lumos.bench.growth:measure",
    },
)
"""What can be measured, by name: functions from `BenchSize` to rows."""

__all__ = ["MEASUREMENTS", "Measurement"]
