"""Edge and cloud: a pair of which the target runs on another machine, exactly."""

PATH = "/v1/verify"  # where a server listens for edges
LONGEST_FRAME = 4 << 20  # bytes of a message to the verifier
