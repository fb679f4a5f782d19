"""Colours, dark and light. Every text keeps a contrast of 4.5:1 with what it stands on; a test computes it."""

from __future__ import annotations

from textual.theme import Theme

DARK, LIGHT = "localspec-dark", "localspec-light"

# Where a token came from; the marks beside the colours are in `source_marks`.
_ORIGINS_DARK = {
    "draft": "#8fd18a",
    "copied": "#c9a6f5",
    "early": "#7fb4ff",
    "corrected": "#f0b866",
    "bonus": "#5fd7d7",
    "plain": "#d7dae0",
    "rejected": "#ef9aa6",
}
_ORIGINS_LIGHT = {
    "draft": "#1b6428",
    "copied": "#6a3d9e",
    "early": "#1f5aa8",
    "corrected": "#804400",
    "bonus": "#00626a",
    "plain": "#22262e",
    "rejected": "#a02538",
}


def _variables(origins: dict[str, str], muted: str, selection: str, surface: str, text: str) -> dict[str, str]:
    return {
        **{f"origin-{name}": color for name, color in origins.items()},
        "muted": muted,
        "text-muted": muted,
        "text-disabled": muted,
        "link-color": origins["early"],
        "link-color-hover": origins["early"],
        "link-background-hover": selection,
        "footer-key-foreground": origins["early"],
        "footer-description-foreground": muted,
        "footer-background": surface,
        "input-selection-background": selection,
        "block-cursor-background": selection,
        "block-cursor-foreground": text,
        "block-cursor-blurred-background": selection,
        "block-cursor-blurred-foreground": text,
        "scrollbar": muted + " 50%",
        "scrollbar-background": surface,
        "scrollbar-corner-color": surface,
    }


THEMES = (
    Theme(
        DARK,
        primary="#7fb4ff",
        secondary="#c9a6f5",
        accent="#f0b866",
        warning="#f0b866",
        error="#ff8896",
        success="#8fd18a",
        foreground="#d7dae0",
        background="#14161b",
        surface="#1b1e25",
        panel="#22262f",
        dark=True,
        variables=_variables(_ORIGINS_DARK, "#9aa3b2", "#33415c", "#1b1e25", "#f2f4f8"),
    ),
    Theme(
        LIGHT,
        primary="#1f5aa8",
        secondary="#6a3d9e",
        accent="#804400",
        warning="#804400",
        error="#a02538",
        success="#1b6428",
        foreground="#22262e",
        background="#fbfaf7",
        surface="#f1efe9",
        panel="#e8e5dd",
        dark=False,
        variables=_variables(_ORIGINS_LIGHT, "#555b66", "#cfdcf2", "#f1efe9", "#14161b"),
    ),
)
