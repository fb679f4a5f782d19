"""How far a prompt is read is told while llama.cpp reads it, by the real engine in its own process."""

from localspec.engine.events import Event, Prefilled, Reading, Started
from localspec.settings.request import LoadSettings, Request
from localspec.worker.client import Worker
from tests.integration import pair

WORDS = "Once upon a time there was a king who had three sons and no crown at all. " * 40


def test_the_backend_tells_every_token_once_and_in_order() -> None:
    """Within a chunk too, or the first 512 tokens of a slow machine would take a minute in silence."""
    told: list[Event] = []
    from localspec.session.loading import load

    loading = load(LoadSettings(str(pair.TARGET), ctx=2048), lambda: False, tell=told.append)
    while True:
        try:
            next(loading)
        except StopIteration as done:
            session = done.value
            break
    told.clear()
    events = list(session.answer(Request(prompt=WORDS, max_tokens=1)))
    session.close()
    n = next(event.prompt_n for event in events if isinstance(event, Started))
    counts = [event.n for event in told if isinstance(event, Reading)]
    assert counts == sorted(counts)
    assert counts[-1] == n > 512
    assert len({count for count in counts if count < 512}) > 10


def test_it_reaches_the_reader_between_start_and_first_token() -> None:
    with Worker() as worker:
        for _ in worker.load(LoadSettings(str(pair.TARGET), ctx=2048)):
            pass
        events = list(worker.generate(Request(prompt=WORDS, max_tokens=1)))
    kinds = [type(event) for event in events]
    started, prefilled = kinds.index(Started), kinds.index(Prefilled)
    assert all(started < i < prefilled for i, kind in enumerate(kinds) if kind is Reading)
