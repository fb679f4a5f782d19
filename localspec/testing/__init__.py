"""Toy models, and the enumeration of every random choice: the proof of exactness, usable by plug-ins."""
