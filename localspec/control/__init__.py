"""Controllers: how much to draft, decided from the past only. A length rule is one that says its `name`."""
