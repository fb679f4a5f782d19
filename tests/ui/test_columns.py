"""Columns within a terminal: names give way in the middle, words go on below, no figure is cut."""

from localspec.ui.columns import fitted

PAIR = "qwen2.5-coder-1.5b-instruct-q4_k_m.gguf+qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"
ROWS = [
    ("pair", "since", "state", "memory", "for"),
    (PAIR, "01:15", "idle, 4 min left", "1.8 GB", "chat 8821, serve 81"),
]


def test_what_fits_is_left_alone() -> None:
    whole = fitted(ROWS, 137)
    assert whole == [
        "pair".ljust(79) + "  since             state  memory                  for",
        f"{PAIR}  01:15  idle, 4 min left  1.8 GB  chat 8821, serve 81",
    ]
    assert max(map(len, whole)) == 133
    assert fitted(ROWS, 133) == whole
    assert fitted(ROWS, 132)[1].startswith(f"{PAIR[:39]}…{PAIR[-38:]}  01:15")


def test_first_the_name_gives_way_then_the_last_words_go_on_below() -> None:
    assert fitted(ROWS, 80)[1] == "qwen2.5-coder…-q4_k_m.gguf  01:15  idle, 4 min left  1.8 GB  chat 8821, serve 81"
    assert fitted(ROWS, 68) == [
        "pair              since             state  memory               for",
        f"{PAIR[:8]}…{PAIR[-7:]}  01:15  idle, 4 min left  1.8 GB  chat 8821, serve",
        "                                                                 81",
    ]
    assert fitted([("key", "a few words of a value")], 21, right=()) == ["key  a few words of a", "     value"]
