"""Figures, texts and questions that the command line and the full-screen chat share."""
