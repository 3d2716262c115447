"""A PyTorch Geometric `Data` of your own, with its own masks."""

import torch
from torch_geometric.data import Data
from torch_geometric.utils import stochastic_blockmodel_graph

import lumos

# Stands for your data: three groups of 400, whose members know each other and share words.
torch.manual_seed(0)
y = torch.arange(3).repeat_interleave(400)
x = (torch.rand(1200, 60) < 0.04 + 0.08 * (torch.arange(60) % 3 == y[:, None])).float()
edge_index = stochastic_blockmodel_graph([400] * 3, 0.002 + 0.008 * torch.eye(3))
part = torch.rand(1200)
data = Data(x=x, y=y, edge_index=edge_index)
data.train_mask, data.val_mask, data.test_mask = (
    part < 0.5,
    part >= 0.75,
    (part - 0.625).abs() < 0.125,
)

run = lumos.train(data, label_epsilon=3.0)
print(run.split.origin)
print(f"test accuracy {run.metrics['test_accuracy']:.3f}, alone {run.own['test_accuracy']:.3f}")
for guarantee in run.guarantees[:2]:
    print(guarantee["about"], "·", guarantee["training devices"])
print(run.predict([0, 400, 800]))
