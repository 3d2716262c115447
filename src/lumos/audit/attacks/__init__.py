"""The registry of attacks. An attack belongs to what it attacks: it may name a profile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lumos.audit.table import AuditRow, Estimate
from lumos.registry import Registry

if TYPE_CHECKING:
    from lumos.audit.harness import Scene


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack.

    Args:
        name: the value of `--attack`.
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
        """Return whether there is anything to attack."""
        return (not self.profiles or profile in self.profiles) and (
            not self.tasks or not self.tasks.isdisjoint(scene.tasks)
        )

    def row(
        self,
        adversary: str,
        about: str,
        measure: str,
        estimate: Estimate,
        *,
        chance: tuple[float, str] | None = None,
        bound: tuple[float, str] | None = None,
        knows_mechanism: bool = False,
        note: str = "",
    ) -> AuditRow:
        """Return a row of this attack; arguments are those of `AuditRow`.

        Args:
            chance: the number of an attacker without these messages, and who that is.
            bound: the number that is claimed, and where the claim stands.
        """
        chance_value, chance_is = (None, "") if chance is None else chance
        bound_value, bound_is = (None, "") if bound is None else bound
        return AuditRow(
            attack=self.name,
            adversary=adversary,
            about=about,
            measure=measure,
            estimate=estimate,
            chance=chance_value,
            chance_is=chance_is,
            bound=bound_value,
            bound_is=bound_is,
            knows_mechanism=knows_mechanism,
            note=note,
        )


ATTACKS: Registry[Attack] = Registry(
    "attack",
    {
        "randomized-labels": "lumos.audit.attacks.neighbours:RANDOMIZED_LABEL_ATTACK",
        "repeats": "lumos.audit.attacks.repeats:REPEATED_RELEASES_ATTACK",
        "whole-run": "lumos.audit.attacks.whole_run:WHOLE_RUN_LABEL_ATTACK",
        "features": "lumos.audit.attacks.whole_run:FEATURE_SWAP_ATTACK",
        "canary": "lumos.audit.attacks.sums:CANARY_ATTACK",
        "propagated-labels": "lumos.audit.attacks.neighbours:PROPAGATED_LABEL_RATIO_ATTACK",
        "neighbourhood": "lumos.audit.attacks.neighbours:NEIGHBOURHOOD_ATTACK",
        "answers": "lumos.audit.attacks.link_queries:LINK_ASKERS_ATTACK",
        "link-neighbours": "lumos.audit.attacks.link_training:LINK_NEIGHBOURS_ATTACK",
        "link-sums": "lumos.audit.attacks.link_training:LINK_SUMS_ATTACK",
        "leaf-features": "lumos.audit.attacks.paper:LEAF_FEATURES_ATTACK",
        "gradient-labels": "lumos.audit.attacks.paper:GRADIENT_LABELS_ATTACK",
        "embedding-neighbours": "lumos.audit.attacks.paper:EMBEDDING_NEIGHBOURS_ATTACK",
        "trees": "lumos.audit.attacks.trees:TREE_MESSAGES_ATTACK",
        "colluders": "lumos.audit.attacks.sums:CHOSEN_COLLUDERS_ATTACK",
        "broker": "lumos.audit.attacks.traffic:BROKER_ATTACK",
        "ledger": "lumos.audit.attacks.traffic:LEDGER_CONFORMANCE_ATTACK",
    },
)
"""Every attack by name, in the order in which an audit runs them."""
