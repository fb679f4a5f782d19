"""Edge and cloud: a pair of which the target runs on another machine, exactly."""
