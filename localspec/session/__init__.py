"""A loaded pair: loading and placing models, answering requests, measuring prices."""
