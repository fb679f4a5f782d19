"""What fills the terminal: the chat, and what opens over it."""
