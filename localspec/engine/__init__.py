"""The loop of speculative decoding, and the data it works on: drafts, distributions, randomness, context, events."""
