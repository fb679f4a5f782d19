"""What `scripts/soak` is made of: clients that misbehave, the machine that they run on, and what is sampled of it."""
