"""The HTTP server: the engine behind the APIs that other programs speak."""
