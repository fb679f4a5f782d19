"""The measurements of `scripts/bench`: a runner, servers to ask, and the cases, a generator function each."""
