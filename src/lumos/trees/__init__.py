"""The heterogeneity-aware tree constructor: who carries which edge, and the tree it makes."""
