"""The two accounts of a pass: its parts add up to the wall clock, and its cost includes the reader's turn."""

from localspec.engine.stopwatch import Stopwatch


def test_two_accounts() -> None:
    now = 0.0
    watch = Stopwatch(lambda: now)

    def after(seconds: float) -> None:
        nonlocal now
        now += seconds
        watch.mark()

    after(1.0)
    after(5.0)
    now += 0.5
    prompt = watch.prompt_times()
    assert (prompt.verify, prompt.sample, prompt.total) == (5.0, 0.5, 5.5)
    now += 10.0  # the drafters read the prompt: part of no pass
    watch.begin_passes()
    now += 2.0  # the reader's turn
    watch.turn()
    began = now
    for _ in range(2):
        after(0.25)
        after(0.125)
        after(3.0)
        after(8.0)
        now += 1.0
        times = watch.pass_times()
        assert (times.draft, times.verify, times.sample, times.planning) == (3.0, 8.0, 1.0, 0.125)
        assert times.other == 2.0 + 0.25 + 0.125, "the reader's turn before it, and planning"
        now += 2.0
        assert watch.turn() == now - began
        began = now
