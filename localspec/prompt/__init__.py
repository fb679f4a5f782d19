"""From messages to the tokens of a prompt: chat templates, their sandbox, leaving out old messages."""
