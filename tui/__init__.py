"""The full-screen chat, on Textual. Installed as `localspec.tui`; nothing but `localspec chat` imports it."""
