"""Model files: reading their headers, naming them, and telling whether two make a pair."""
