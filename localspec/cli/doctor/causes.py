"""The causes of slow speculation, one function each: a measured number and its meaning.

They lie in a pair's drafting, in the model's build or in the machine. Each finding was measured, or says that it was
not. Thresholds are in units of a plain pass.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from localspec.bench.diagnosis import CHAIN, TEMPERATURE
from localspec.cli.doctor.case import SHORT, Case, Finding, read_bytes, unmeasured
from localspec.cli.staircase import by_rows, stairs
from localspec.control.chain import NEXT
from localspec.control.prices import break_even
from localspec.settings.sizes import counted, size, three_digits

UNION = 1.3  # two rows against one in a mixture of experts
HEAT = 1.15  # a pass at the end against the same at the start
SWAPPED = 0.01  # share of the loaded bytes: less may be memory that no pass reads
FAULTS = (10, 100)  # pages read while passes were timed, a note and bad: a few are code that was not needed before
DEAR = (0.15, 1 / 3)  # a draft token, of a target pass: worth a note, bad
ASKED = 0.15  # acceptance that rows alone ask for, were drafting free: with more they are dear
LOW = (0.6, 0.4)  # acceptance: below, worth a note, bad
STEEPER = 1.3  # the price of rows deep in a context over that at its start
TIGHT = 1.5  # a cliff within the rows of a short chain that costs this is bad
STATES = ("ok", "note", "bad")
DECIDES = "localspec bench PAIR --methods plain,auto"
MORE_TIME = "localspec doctor PAIR --seconds 300, or more"
COPIES = "--method suffix, which drafts only what is likely"


def causes(case: Case) -> Iterator[Finding]:
    for one in (devices, rows, dear_draft, acceptance, temperature, template):
        yield one(case)
    for one in (experts, rollback, memory, threads, drift):
        yield one(case)


def devices(case: Case) -> Finding:
    """Does the draft run on a slower device than the target?"""
    target, draft, ms = case.loaded.target, case.loaded.draft, case.target[1]
    if draft is None or case.draft is None or case.draft_parts is None:
        return unmeasured("devices", "the pair has no draft model")
    rates = [read_bytes(case.parts, 1) / ms / 1e6, read_bytes(case.draft_parts, 1) / case.draft / 1e6]  # GB/s
    facts = {"target": target.devices, "draft": draft.devices, "target_gb_per_s": rates[0], "draft_gb_per_s": rates[1]}
    text = (
        f"target on {' and '.join(target.devices)}, {rates[0]:.1f} GB/s of weights; "
        f"draft on {' and '.join(draft.devices)}, {rates[1]:.1f} GB/s"
    )
    quick = [name for name in target.devices if name != "CPU"]
    if not quick or any(name in quick for name in draft.devices):  # one of several is often the best place
        return Finding("devices", "ok", text, facts=facts)
    text += f": the draft does not use {' or '.join(quick)}, which the target does"
    if rates[1] >= rates[0]:  # a target on another machine's device, a draft on a second GPU
        return Finding("devices", "ok", f"{text}, and is not slower for it", facts=facts)
    return Finding("devices", "bad", text, "--draft-gpu all", facts=facts)


def rows(case: Case) -> Finding:
    """Where does one more row cost as much as several?"""
    costs = case.target
    if len(costs) < 2:
        return unmeasured("rows", "the time sufficed for one width of a pass", "localspec doctor PAIR --seconds 600")
    cliffs = [one for one in stairs(costs) if one.is_cliff]
    widest = max(n for n in costs if n <= SHORT)
    ratio, deep = costs[widest] / costs[1], by_rows(case.survey["target"]["deep_ms"])
    text = f"{widest} rows cost {ratio:.2f}x of 1"
    facts = {"ms": case.survey["target"]["ms"], "cliffs": [[one.before, one.rows, one.ratio] for one in cliffs]}
    is_steeper = False
    if widest in deep:
        later, position = deep[widest] / deep[1], case.survey["target"]["position"]
        text += f", {later:.2f}x with {position} tokens in the context"
        facts |= {"deep_ms": case.survey["target"]["deep_ms"], "position": position}
        is_steeper = later > STEEPER * ratio
    if cliffs:
        worst = max(cliffs, key=lambda one: (one.rows <= SHORT, one.ratio))  # a short chain meets those first
        text += f"; {worst.rows} rows cost {worst.ratio:.2f}x of {worst.before}"
        is_bad = worst.rows <= SHORT and worst.ratio >= TIGHT
        state = "bad" if is_bad else "note"
        hint = f"{f'-k {worst.before - 1}' if worst.before > 1 else COPIES} (auto takes it into account)"
    else:
        text += f"; no width is a cliff (up to {max(costs)} rows)"
        state = "note" if is_steeper else "ok"
        hint = "localspec calibrate PAIR --flash-attn on, and off, to compare" if is_steeper else ""
    why = _too_dear(case)
    is_never = _never(case)
    if is_never or (why and state == "ok"):
        state = "bad" if is_never else "note"
        hint = f"another quantisation of the target (localspec calibrate PAIR times it), or {COPIES}"
    return Finding("rows", state, text + why, hint, facts=facts)


def _never(case: Case) -> bool:
    """Whether rows are so dear that no chain would pay with a draft that is not bad either, whatever is accepted."""
    if case.draft is None or not case.has_rows:
        return False
    costs = case.costs
    return break_even(costs, min(case.draft, DEAR[1] * costs.of(1))) is None


def _too_dear(case: Case) -> str:
    """Say from which acceptance on guesses pay, if none do here and the price of rows is why."""
    if _never(case):
        return ": checking guesses takes so long that none pays, even if all are accepted"
    tried = case.evidence.tried.get("sampled")
    if case.draft is None or not case.has_rows or tried is None or not tried.seen:
        return ""
    costs = case.costs
    least, of_rows = break_even(costs, case.draft), break_even(costs, 0.0)
    is_theirs = of_rows is None or of_rows > ASKED
    if least is None or not is_theirs or _suffices(tried.share, least):
        return ""  # where none is enough and rows are not why, the draft is
    return f": checking guesses takes so long that they pay only if {least:.0%} are accepted; {tried.share:.0%} were"


def _pays(case: Case) -> bool | None:
    """Whether guesses pay by what was measured just now, None where that was not measured whole."""
    tried = case.evidence.tried.get("sampled")
    if case.draft is None or not case.has_rows or tried is None or not tried.seen:
        return None
    least = break_even(case.costs, case.draft)
    return least is not None and _suffices(tried.share, least)


def _suffices(share: float, least: float) -> bool:
    """Whether so many are accepted, in the percents that are printed."""
    return round(share, 2) >= least


def _before(case: Case) -> str:
    """Return what loads and answers found of the draft, and why that is another number; "" for nothing."""
    if case.worth is None or not case.worth.is_measured:
        return ""
    pays = _pays(case)
    agree = pays is None or pays == (case.worth.gain >= 1.0)
    told = "" if agree else ", on other texts and at another pace of the machine"
    return f"; auto goes by what loads and answers measured{told}: it {case.worth.told}"


def dear_draft(case: Case) -> Finding:
    """Is the draft cheap against the target?"""
    if case.draft is None:
        return unmeasured("draft", "the pair has no draft model", "localspec pairs list")
    n, plain = case.decode_rows, case.target[case.decode_rows]
    ratio = case.draft / plain
    text = f"a token costs {three_digits(case.draft)} ms, {ratio:.2g} of a target pass, {three_digits(plain)} ms"
    text += f" of {n} rows, which take less than one" if n > 1 else ""
    facts: dict[str, Any] = {"draft_ms": case.draft, "target_ms": plain, "target_rows": n, "ratio": ratio}
    if case.has_rows:
        least = facts["break_even"] = break_even(case.costs, case.draft)
        judged = f"pay only if {least:.0%} of them are" if least else "never pay, even if all are"
        tried = case.evidence.tried.get("sampled")
        were = f", and {tried.share:.0%} were" if least and tried is not None and tried.seen else ""
        text += f"; by these costs guesses {judged} accepted{were}{_before(case)}"
        if case.worth is not None and case.worth.is_measured:
            facts["worth"] = case.worth.to_wire()
    else:
        text += "; what further rows cost was not measured"
    state = "bad" if ratio > DEAR[1] else "note" if ratio > DEAR[0] else "ok"
    hint = "" if state == "ok" else "a smaller draft: localspec pairs list, or --method suffix"
    if case.worth is not None and case.worth.loses:
        is_denied = case.worth.is_measured and _pays(case)
        state, hint = (max(state, "note", key=STATES.index), DECIDES) if is_denied else ("bad", NEXT)
    return Finding("draft", state, text, hint, facts=facts)


def acceptance(case: Case) -> Finding:
    """Is what is drafted accepted, and often enough for these costs?"""
    tried = case.evidence.tried.get("sampled")
    if tried is None or not tried.seen:
        return _untried(case, "accepted")
    raced = "" if case.evidence.race is None else case.evidence.race.verify
    text = f"{_spelt(tried.share, tried.error)} of draft tokens at T={TEMPERATURE:g}, of {tried.seen} judged"
    text += f" by --verify {CHAIN.verify} (the race: {raced})" if raced not in ("", CHAIN.verify) else ""
    facts = tried.to_wire()
    is_too_few = False
    if case.has_rows:
        least = facts["break_even"] = break_even(case.costs, case.draft or 0.0)
        is_too_few = least is not None and not _suffices(tried.share, least)  # else the costs are the cause
        text += f"; guesses pay only if {least:.0%} are accepted" if is_too_few else ""
    state = "bad" if is_too_few or tried.share < LOW[1] else "note" if tried.share < LOW[0] else "ok"
    hint = "" if state == "ok" else "another draft: localspec pairs list"
    hint += f"; or {COPIES}" if is_too_few else ""
    return Finding("accepted", state, text, hint, facts=facts)


def temperature(case: Case) -> Finding:
    """Does sampling explain rejections?"""
    greedy, sampled = (case.evidence.tried.get(name) for name in ("greedy", "sampled"))
    if greedy is None or sampled is None or not greedy.seen or not sampled.seen:
        return _untried(case, "sampling")
    text = (
        f"accepted {_spelt(greedy.share, greedy.error)} at T=0, {_spelt(sampled.share, sampled.error)} "
        f"at T={TEMPERATURE:g}"
    )
    facts = {"greedy": greedy.to_wire(), "sampled": sampled.to_wire()}
    if not greedy.differs(sampled):
        text += ": no difference beyond chance, so temperature explains nothing"
        return Finding("sampling", "ok", text, facts=facts)
    if greedy.share < sampled.share:
        return Finding("sampling", "ok", f"{text}: temperature costs nothing", facts=facts)
    lost = greedy.share - sampled.share
    hint = "a lower --temp, if the text may be another"
    return Finding("sampling", "note", f"{text}: temperature costs {lost:.0%} of the tokens", hint, facts=facts)


def template(case: Case) -> Finding:
    """Does the chat template explain rejections?"""
    tried = case.evidence.tried
    usual = tried.get("greedy")
    if usual is None or not usual.seen:
        return _untried(case, "template")
    own = tried.get("draft template")
    if own is None or not own.seen:
        why = case.evidence.refused.get("draft template")
        told = f"not tried with the draft's own: {why}" if why else "the draft has no other one"
        return Finding("template", "ok", f"accepted {_spelt(usual.share, usual.error)}; {told}")
    text = f"accepted {_spelt(usual.share, usual.error)} with the chat template at T=0, "
    text += f"{_spelt(own.share, own.error)} with the draft's own template"
    facts = {"chat": usual.to_wire(), "draft template": own.to_wire()}
    if own.share <= usual.share or not own.differs(usual):
        return Finding("template", "ok", f"{text}: the template is not what costs acceptance", facts=facts)
    text += f": with the target's {own.share - usual.share:.0%} fewer are accepted"
    state = "bad" if usual.share < LOW[1] else "note"
    return Finding("template", state, text, "--template of the draft", facts=facts)


def _spelt(share: float, error: float) -> str:
    return f"{100 * share:.0f} % (± {200 * error:.0f})"


def _untried(case: Case, name: str) -> Finding:
    """Say why acceptance is not known."""
    if case.loaded.draft is None:
        return unmeasured(name, "the pair has no draft model")
    if case.evidence.is_cut:
        return unmeasured(name, "the time was up", MORE_TIME)
    if case.evidence.tried:
        return unmeasured(name, "no draft token was judged")
    return unmeasured(name, "no answer could be drafted")


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


def rollback(case: Case) -> Finding:
    """Can both models take tokens back?"""
    stuck = [name for name in ("", "draft_") if case.survey[f"{name}can_rollback"] is False]
    facts = {"can_rollback": case.survey["can_rollback"]}
    if not stuck:
        return Finding("rollback", "ok", "tokens can be taken back, as tried at the load", facts=facts)
    who = " and ".join("draft" if name else "target" for name in stuck)
    text = f"the {who} cannot take tokens back, as tried when it was loaded, so nothing is drafted with it"
    return Finding("rollback", "bad", text, "a pair of attention models: localspec pairs list", facts=facts)


def memory(case: Case) -> Finding:
    """Did passes wait for a disk?"""
    swapped, faults = case.evidence.swapped_bytes, case.evidence.major_faults
    facts = {"swapped_bytes": swapped, "major_faults": faults}
    told = "the system does not say how much is swapped" if swapped is None else f"{size(swapped)} swapped out"
    text = f"{told}, {counted(faults, 'page')} read from a disk while passes were timed"
    models = [one for one in (case.loaded.target, case.loaded.draft) if one is not None]
    is_swapped = swapped is not None and swapped > SWAPPED * sum(one.bytes for one in models)
    is_read, is_much_read = (faults > limit for limit in FAULTS)
    is_bad = is_much_read or (is_swapped and is_read)  # memory that was not read back slowed no pass
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
    took = f"{three_digits(first)} ms at the start, {three_digits(last)} ms at the end"
    text = f"a pass of one row took {took}, {ratio:.2f}x"
    facts = {"first_ms": first, "last_ms": last, "ratio": ratio}
    if 1 / HEAT <= ratio <= HEAT:
        return Finding("drift", "ok", text, facts=facts)
    text += ": the machine changed its pace, by heat or by other programs (which of them was not measured)"
    return Finding("drift", "note", text, "once more, with nothing else running", facts=facts)
