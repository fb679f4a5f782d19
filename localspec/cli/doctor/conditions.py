"""The causes of slow speculation that lie in the model's build or in the machine, one function each with its number."""

from __future__ import annotations

from typing import Any

from localspec.cli.doctor.case import Case, Finding, read_bytes, unmeasured
from localspec.cli.staircase import spelt_ms
from localspec.settings.sizes import counted, size

UNION = 1.3  # two rows against one in a mixture of experts
HEAT = 1.15  # a pass at the end against the same at the start
HOST = 1 / 4  # of a pass
SWAPPED = 0.01  # of what is loaded: less is what lies unused anyway
FAULTS = (10, 100)  # pages read while passes were timed, a note and bad: a few are code that was not needed before


def experts(case: Case) -> Finding:
    """Do two rows read more experts than one?"""
    parts, costs = case.parts, case.target
    if not parts.n_experts:
        return Finding("experts", "ok", "none: every row reads the same weights", facts={"n": 0})
    facts: dict[str, Any] = {"n": parts.n_experts, "used": parts.n_used}
    said = f"{parts.n_used} of {parts.n_experts} experts a token"
    if 2 not in costs:
        return unmeasured("experts", f"{said}; a pass of two rows was not timed")
    predicted = read_bytes(parts, 2) / max(read_bytes(parts, 1), 1)
    ratio = costs[2] / costs[1]
    facts |= {"ratio": ratio, "bytes_ratio": predicted}
    text = f"{said}: two rows cost {ratio:.2f}x of one; by bytes, were routing even, {predicted:.2f}x"
    if ratio < UNION:
        return Finding("experts", "ok", text, facts=facts)
    if predicted < UNION:
        return Finding("experts", "note", f"{text}: more experts are not why", "localspec calibrate PAIR", facts=facts)
    hint = "more of the experts on the GPU (localspec plan PAIR), or --method suffix"
    return Finding("experts", "bad", f"{text}: verifying reads the union of what all rows use", hint, facts=facts)


def replays(case: Case) -> Finding:
    """Was anything evaluated twice, because tokens could not be taken back?"""
    stuck = [name for name in ("", "draft_") if case.survey[f"{name}can_rollback"] is False]
    facts = {"can_rollback": case.survey["can_rollback"], "replayed_rows": case.evidence.replayed}
    if stuck:
        who = " and ".join("draft" if name else "target" for name in stuck)
        text = f"the {who} cannot take tokens back, as tried when it was loaded, so nothing is drafted with it"
        return Finding("replays", "bad", text, "a pair of attention models: localspec pairs list", facts=facts)
    if case.evidence.replayed is None:
        return unmeasured("replays", "the time was up" if case.evidence.is_cut else "nothing was drafted")
    n = case.evidence.replayed
    text = f"{n} rows of the target were evaluated beyond those its answers needed"
    return Finding("replays", "ok" if n == 0 else "note", text, facts=facts)


def host(case: Case) -> Finding:
    """How much of a pass is neither model's?"""
    raced = case.evidence.race
    spent = [one.other.stats for one in raced.rounds] if raced is not None else []
    whole, passes = sum(one.decode_ms for one in spent), sum(one.passes - 1 for one in spent)
    if passes < 1 or whole <= 0.0:
        return unmeasured("host", "the race was stopped, or too short")
    drafting, verifying = (sum(getattr(one, name) for one in spent) / passes for name in ("draft_ms", "verify_ms"))
    rest = whole / passes - drafting - verifying
    share = rest * passes / whole
    text = f"a pass of the race took {spelt_ms(drafting)} ms of drafting, {spelt_ms(verifying)} ms of the target, "
    text += f"{spelt_ms(rest)} ms of all else, {share:.0%}"
    facts = {"draft_ms": drafting, "target_ms": verifying, "host_ms": rest, "share": share}
    if share <= HOST:
        return Finding("host", "ok", text, facts=facts)
    text += ": so small are the models that judging and telling tokens is a large part of a pass"
    return Finding("host", "note", text, "a larger target, which gains more", facts=facts)


def memory(case: Case) -> Finding:
    """Did passes wait for a disk?"""
    swapped, faults = case.evidence.swapped_bytes, case.evidence.major_faults
    facts = {"swapped_bytes": swapped, "major_faults": faults}
    told = "the system does not say how much is swapped" if swapped is None else f"{size(swapped)} swapped out"
    text = f"{told}, {counted(faults, 'page')} read from a disk while passes were timed"
    models = [one for one in (case.loaded.target, case.loaded.draft) if one is not None]
    is_swapped = swapped is not None and swapped > SWAPPED * sum(one.bytes for one in models)
    is_read, is_much_read = (faults > limit for limit in FAULTS)
    is_bad = is_much_read or (is_swapped and is_read)  # what is swapped and not read back slowed no pass
    state = "bad" if is_bad else "note" if is_read or is_swapped else "ok"
    hint = "" if state == "ok" else "close other programs, or a smaller quantisation"
    return Finding("memory", state, text, hint, facts=facts)


def threads(case: Case) -> Finding:
    """Are there more threads than cores?"""
    cores, used = case.survey["cores"], [case.survey["threads"], case.survey["draft_threads"]]
    told = " and ".join(f"{n} for the {name}" for n, name in zip(used, ("target", "draft"), strict=True) if n)
    facts = {"threads": used[0], "draft_threads": used[1], "cores": cores}
    text = f"{told} on {cores} physical core{'' if cores == 1 else 's'}"
    if max(n for n in used if n) <= cores:
        return Finding("threads", "ok", text, facts=facts)
    text += "; what fewer would bring was not timed"
    return Finding("threads", "note", text, f"--threads {cores}, or leave out --threads", facts=facts)


def drift(case: Case) -> Finding:
    """Is the same pass as fast at the end as it was at the start?"""
    first, last = case.evidence.began_ms, case.evidence.ended_ms
    if first is None or last is None:
        return unmeasured("drift", "the examination was stopped before its end")
    ratio = last / first
    text = f"a pass of one row took {spelt_ms(first)} ms at the start, {spelt_ms(last)} ms at the end, {ratio:.2f}x"
    facts = {"first_ms": first, "last_ms": last, "ratio": ratio}
    if 1 / HEAT <= ratio <= HEAT:
        return Finding("drift", "ok", text, facts=facts)
    text += ": the machine changed its pace, by heat or by other programs (which of them was not measured)"
    return Finding("drift", "note", text, "once more, with nothing else running", facts=facts)
