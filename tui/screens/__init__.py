"""The screens: the chat, and those that open over it."""
