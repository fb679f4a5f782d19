"""Ranking: the likeliest of many items after a prompt, found exactly and without scoring them all."""
