"""Strict link prediction: an encoder of words, neighbourhood sketches, and secret scores."""
