"""Every attack, one file each. An attack belongs to what it attacks: it may name a profile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumos.registry import Registry

if TYPE_CHECKING:
    from lumos.audit.audit_row import AuditRow
    from lumos.audit.scene import Scene


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack.

    Args:
        name: as `--attack` has it.
        title: what it tries, in a few words.
        profiles: the profiles that it attacks; every one, if empty.
        tasks: the tasks of which at least one must be audited; any, if empty.
        run: yields rows.
    """

    name: str
    title: str
    run: "Callable[[Scene], Iterator[AuditRow]]"
    profiles: frozenset[str] = frozenset()
    tasks: frozenset[str] = frozenset()

    def applies(self, scene: "Scene", profile: str) -> bool:
        """Whether there is anything to attack."""
        return (not self.profiles or profile in self.profiles) and (
            not self.tasks or not self.tasks.isdisjoint(scene.tasks)
        )


ATTACKS: Registry[Attack] = Registry(
    "attack",
    {
        "symbol": "lumos.audit.attacks.symbol_ratio:ATTACK",
        "repeats": "lumos.audit.attacks.repeated_releases:ATTACK",
        "whole-run": "lumos.audit.attacks.whole_run_label:ATTACK",
        "features": "lumos.audit.attacks.feature_swap:ATTACK",
        "canary": "lumos.audit.attacks.canary:ATTACK",
        "opinions": "lumos.audit.attacks.opinion_ratio:ATTACK",
        "neighbourhood": "lumos.audit.attacks.neighbourhood:ATTACK",
        "answers": "lumos.audit.attacks.link_askers:ATTACK",
        "link-neighbours": "lumos.audit.attacks.link_neighbours:ATTACK",
        "link-sums": "lumos.audit.attacks.link_sums:ATTACK",
        "leaf-features": "lumos.audit.attacks.leaf_features:ATTACK",
        "gradient-labels": "lumos.audit.attacks.gradient_labels:ATTACK",
        "embedding-neighbours": "lumos.audit.attacks.embedding_neighbours:ATTACK",
        "trees": "lumos.audit.attacks.tree_messages:ATTACK",
        "colluders": "lumos.audit.attacks.chosen_colluders:ATTACK",
        "broker": "lumos.audit.attacks.broker:ATTACK",
        "ledger": "lumos.audit.attacks.ledger_conformance:ATTACK",
    },
)
"""Every attack by name, in the order in which an audit runs them."""
