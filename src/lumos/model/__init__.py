"""The network on trees: fast GCN and GAT layers, any PyG layer by name, and POOL.

`network` runs on the trees of a whole shard; `gcn`, `gat` and `generic` are its layers, `pool`
makes one embedding of a vertex's leaves, `by_device` gradients of each device apart. `settings` can
be imported without torch.
"""
