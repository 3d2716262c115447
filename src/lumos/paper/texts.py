"""What the paper's profile says about its runs."""

from lumos.paper.settings import settings_of
from lumos.training.config import Config
from lumos.training.texts import ProfileTexts, RunSizes, SumStage, TreeTexts

LARGEST_WORKLOAD = {"facebook": 39.0, "lastfm": 16.0}
"""By graph, the largest workload that the paper reports after tree trimming."""


def run_texts(config: Config) -> ProfileTexts:
    """What reports say about a run."""
    paper = settings_of(config)
    return ProfileTexts(
        promise=lambda _: _unprotected(config),
        design="this is the paper's own design.",
        trees=TreeTexts(
            workload=(
                "A device's workload is the number of neighbours that it keeps in its tree. Every "
                "edge is kept by at least one of its two ends, and the busiest device sets the "
                "pace."
            ),
            own_leaf="its own features",
            other_leaf="its features, with noise" if paper.noisy else "its features, as they are",
            builder="the device that keeps these edges",
            virtual_nodes=paper.virtual_nodes,
            reported_largest=LARGEST_WORKLOAD,
        ),
        sums=_sums,
        validation=(
            "The weights of the best validation score are kept"
            if paper.select == "validation"
            else ""
        ),
    )


def _sums(sizes: RunSizes) -> list[SumStage]:
    """Every epoch is one sum: a gradient, and what loss and validation score are made of."""
    from lumos.paper.tasks import STATISTICS  # torch, which settings do without

    weights = sum(array.size for array in sizes.weights.values())
    return [
        SumStage(
            name="network",
            learns="all weights of the network, from gradients of training devices",
            first=1,
            last=sizes.epochs,
            numbers=weights + len(STATISTICS),
            loss=(
                "Mean loss over training devices. Where it goes on falling while the validation "
                "score does not rise, the network learns its training devices by heart."
            ),
        )
    ]


def _unprotected(config: Config) -> str:
    """What a run does not protect, in one sentence."""
    paper = settings_of(config)
    told = "labels" if config.train.task == "classify" else "links"
    strangers = " and strangers" * (config.train.task == "link")
    features = (
        f"ε = {paper.epsilon:g} covers released features alone"
        if paper.noisy
        else "features went to neighbours as they are"
    )
    return (
        f"Nothing is promised: neighbours{strangers} got embeddings of raw features, and gradients "
        f"that depend on {told}, without protection; {features}."
    )
