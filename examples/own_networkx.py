"""A NetworkX graph of your own, with a list of numbers and a class on every node."""

import networkx as nx
import numpy as np

import lumos

# Stands for your graph: four communities of 200, whose members have a topic in common.
randomness = np.random.default_rng(0)
communities = nx.planted_partition_graph(4, 200, 0.03, 0.002, seed=0)
graph = nx.Graph(communities.edges, name="clubs")
graph.add_nodes_from(communities)
for node in graph:
    topic = node // 200
    graph.nodes[node]["x"] = (
        randomness.random(40) < 0.1 + 0.2 * (np.arange(40) % 4 == topic)
    ).astype(float)
    graph.nodes[node]["y"] = ("chess", "choir", "hiking", "rowing")[topic]

run = lumos.train(graph, features="x", labels="y")  # node attributes; x and y are the usual ones
print(f"test accuracy {run.metrics['test_accuracy']:.3f}, alone {run.own['test_accuracy']:.3f}")

for node, label in zip(graph, run.predict(), strict=True):
    graph.nodes[node]["predicted"] = label
print(graph.nodes[0]["y"], graph.nodes[0]["predicted"])
