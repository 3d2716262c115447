"""A graph of your own in one npz: edges, features, labels."""

import numpy as np

import lumos

# Stands for your file; `edge_index`, `x` and `y` are read as well.
demo = lumos.load("demo:600")
np.savez(
    "own-graph.npz",
    edges=demo.edge_list(),  # [edges, 2], each edge once or in both directions
    features=demo.to_pyg().x.to_dense().numpy(),  # [devices, features]
    target=np.array(demo.classes)[demo.labels],  # [devices], whole numbers or names
)

graph = lumos.load("own-graph.npz")
print(graph)
run = lumos.train(graph)
print(f"test accuracy {run.metrics['test_accuracy']:.3f}, alone {run.own['test_accuracy']:.3f}")
