"""Draft heads of the user's own: their files, their networks and their training."""
