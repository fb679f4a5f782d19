"""Model files: their headers, names and catalogue, the hub, early exits, pairs that fit, and placement."""
