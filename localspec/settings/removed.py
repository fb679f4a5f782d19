"""Names that earlier versions had, as they were typed, with what does their work."""

from localspec.errors import UsageError

MEASURE = "localspec plan PAIR --measure"
REMOVED = {  # as it was typed: the version without it, and what to type instead
    "calibrate PAIR": ("0.2.0", MEASURE),
    "calibrate --seconds": ("0.2.0", MEASURE),
    "doctor PAIR": ("0.2.0", MEASURE),
    "doctor --seconds": ("0.2.0", MEASURE),
    "pairs suggest": ("0.2.0", "localspec plan TARGET --hub"),
    "calibrate --attention": ("0.2.0", "--flash-attn on, or off, with any command; auto follows a rule"),
    "preset list": ("0.2.0", "localspec config preset"),
    "preset show": ("0.2.0", "localspec config preset"),
    "preset rm": ("0.2.0", "localspec config unset presets.NAME"),
    "run --pretty": ("0.2.0", "localspec run ... | jq"),
    "--length aimd": ("0.2.0", "--length adaptive"),
    "--length entropy": ("0.2.0", "--length confidence"),
    "--length margin": ("0.2.0", "--length confidence"),
    "--method ngram-cache": ("0.2.0", "--method suffix"),
    "--tree dyspec-layered": ("0.2.0", "--tree sequoia"),
    "--tree opt-tree": ("0.2.0", "--tree eagle2"),
    "--tree p-split": ("0.2.0", "--tree eagle2"),
    "--verify shortcut": ("0.2.0", "--approximate --verify typical"),
}


def check_removed(typed: str) -> None:
    for old, (version, new) in REMOVED.items():
        if typed in (old, old.split()[-1]):
            raise UsageError(f"{old} was removed in {version}", hint=new)
