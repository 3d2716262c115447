"""Readers of graph files and of graphs of other libraries, and the ways back."""
