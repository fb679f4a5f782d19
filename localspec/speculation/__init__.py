"""Who drafts, how, and which rule verifies: options resolved to names, and checked against the loaded models."""
