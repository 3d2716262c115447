"""Strict classification: labels randomized once, propagated labels, and noisy sums."""
