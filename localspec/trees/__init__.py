"""Expansion policies: how a drafter's distributions become a tree. Each class says its `name`."""
