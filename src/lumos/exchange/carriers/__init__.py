"""Carriers: what moves messages between the parties of a federation. One file each."""
