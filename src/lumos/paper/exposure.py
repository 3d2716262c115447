"""One plain paragraph at the end of a run: what was exposed, and to whom (errata A to H)."""

from lumos.exchange.ledger_report import LedgerReport
from lumos.exchange.topic import Door
from lumos.paper.settings import settings_of
from lumos.training.config import Config


def exposure(config: Config, ledger: LedgerReport) -> str:
    """What the run gave away, in words, with the ledger's figures."""
    opened = [line for line in ledger.topics.values() if line.door == Door.OPEN]
    if not opened:
        return "Nothing left a device through the door `open`."
    messages = sum(line.messages for line in opened)
    sentences = [
        f"This run used the door `open`: {messages:,} messages without any protection.",
        "Every epoch, a device that carries an edge sent its neighbour an embedding computed from "
        "its own raw features, and got back a gradient that depends on the neighbour's "
        + ("label" if config.train.task == "classify" else "links")
        + "; the size of that gradient tells how many leaves the neighbour has.",
    ]
    if config.train.task == "link":
        sentences.append(
            "Embeddings computed from raw features also went to strangers who drew the device as "
            "a negative sample, and each asker's gradient told the asked, strangers too, the "
            "direction of the asker's own embedding."
        )
    if settings_of(config).noisy:
        sentences.append(
            f"Released features cost ε = {ledger.epsilon_per_receiver:g} towards each receiver and "
            f"up to {ledger.epsilon_collusion:g} if a device's receivers collude; the form of a "
            "release tells its receiver about how many receivers there are, and so the sender's "
            "degree. But since embeddings of raw features are open, this ε protects little here: "
            "`lumos audit` finds a neighbour's words from embeddings, with or without it."
        )
    else:
        sentences.append("Features went to neighbours as they are (ε = inf).")
    sentences.append(
        "Losses and updates were only added up"
        + (
            " by masked sums: nobody saw a single device's."
            if config.train.aggregate == "secure"
            else ", here in the clear by the simulation (`aggregate='ideal'`)."
        )
    )
    return " ".join(sentences)
