"""Predict links: two devices compute the level of a secret score, and answers are counted."""

import numpy as np

import lumos

# Stands for your graph: 60 teams of 20, whose members know each other and share a few words.
randomness = np.random.default_rng(0)
team = np.repeat(np.arange(60), 20)
inside = (team[:, None] == team) & (randomness.random((1200, 1200)) < 0.4)
across = randomness.random((1200, 1200)) < 1 / 1200
share = np.where(np.arange(180) // 3 == team[:, None], 0.6, 0.01)
graph = lumos.Graph.from_edges(
    np.argwhere(np.triu(inside | across, 1)),  # [edges, 2]
    features=(randomness.random((1200, 180)) < share).astype(np.float32),  # [devices, words]
    name="teams",
)

run = lumos.train(graph, task="link")
print(f"ROC-AUC {run.metrics['test_auc']:.3f}, own degree alone {run.own['test_auc']:.3f}")

device, others = 0, [5, 10, 15, 500, 700, 900]
asked = run.ask_links(ids=[(device, other) for other in others])  # the first device of a pair asks
for other, chance, answered in zip(others, asked.probability, asked.answered, strict=True):
    print(f"{device} – {other}: {chance:.3f}", "" if answered else "(no answer: by degree alone)")
print(run.suggest(device, others, most=3))  # all were asked before, so it costs nothing
