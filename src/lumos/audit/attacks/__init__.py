"""The registry of attacks. An attack belongs to what it attacks: it may name a profile."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from lumos.audit.table import AuditRow
from lumos.registry import Registry

if TYPE_CHECKING:
    from lumos.audit.harness import Scene

Run = Callable[[Any], Iterator[AuditRow]]
"""From a `Scene` to rows; attacks on real devices have a scene of their own."""


@dataclass(frozen=True, kw_only=True)
class Attack:
    """One attack.

    Args:
        name: the value of `--attack`; its rows get it.
        title: what it tries, in a few words.
        profile: the profile that it attacks; every one, if empty.
        task: the task that must be audited; any, if empty.
        run: yields rows.
    """

    name: str
    title: str
    run: Run
    profile: str = ""
    task: str = ""

    def applies(self, scene: "Scene", profile: str) -> bool:
        """Return whether there is anything to attack."""
        return self.profile in ("", profile) and self.task in ("", *scene.tasks)

    def __call__(self, scene: Any) -> Iterator[AuditRow]:
        """Yield the rows of the attack."""
        return (replace(row, attack=self.name) for row in self.run(scene))


def attack(name: str, title: str, profile: str = "", task: str = "") -> Callable[[Run], Attack]:
    """Make an attack of a function that yields rows; arguments are those of `Attack`."""
    return lambda run: Attack(name=name, title=title, run=run, profile=profile, task=task)


ATTACKS: Registry[Attack] = Registry(
    "attack",
    {
        "randomized-labels": "lumos.audit.attacks.neighbours:attack_randomized_label",
        "repeats": "lumos.audit.attacks.neighbours:attack_repeated_releases",
        "whole-run": "lumos.audit.attacks.whole_run:attack_whole_run_label",
        "features": "lumos.audit.attacks.whole_run:attack_feature_swap",
        "canary": "lumos.audit.attacks.sums:attack_canary",
        "propagated-labels": "lumos.audit.attacks.neighbours:attack_propagated_label_ratio",
        "neighbourhood": "lumos.audit.attacks.neighbours:attack_neighbourhood",
        "reconstruction": "lumos.audit.attacks.neighbours:attack_reconstruction",
        "answers": "lumos.audit.attacks.link_queries:attack_link_askers",
        "link-neighbours": "lumos.audit.attacks.link_training:attack_link_neighbours",
        "link-sums": "lumos.audit.attacks.link_training:attack_link_sums",
        "link-associations": "lumos.audit.attacks.link_associations:attack_link_associations",
        "leaf-features": "lumos.audit.attacks.paper:attack_leaf_features",
        "gradient-labels": "lumos.audit.attacks.paper:attack_gradient_labels",
        "embedding-neighbours": "lumos.audit.attacks.paper:attack_embedding_neighbours",
        "trees": "lumos.audit.attacks.trees:attack_tree_messages",
        "colluders": "lumos.audit.attacks.sums:attack_chosen_colluders",
        "poisoning": "lumos.audit.attacks.poisoning:attack_poisoning",
        "sybils": "lumos.audit.attacks.poisoning:attack_sybils",
        "framing": "lumos.audit.attacks.framing:attack_framing",
        "equivocation": "lumos.audit.attacks.equivocation:attack_equivocation",
        "broker": "lumos.audit.attacks.traffic:attack_broker",
        "ledger": "lumos.audit.attacks.traffic:attack_ledger_conformance",
    },
)
"""Every attack by name, in the order in which an audit runs them."""
