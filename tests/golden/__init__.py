"""The outputs that users and programs rely on, recorded."""
