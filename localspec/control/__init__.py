"""Controllers: how much to draft, decided from the past only. `LENGTHS` registers the draft-length rules."""

LENGTHS: dict[str, str] = {
    "fixed": "localspec.control.fixed:Fixed",
}
