"""Hostile chat templates are refused in time, whatever they call, and the next template renders as ever."""

import os
import resource
import signal
import subprocess
import sys
import threading
import time
from typing import Any

import pytest

from localspec.errors import IncompatibleError, InternalError, ResourceError
from localspec.prompt import renderer
from localspec.prompt.chat_template import CHATML, Rendered, render
from localspec.prompt.renderer import RENDERER, Renderer
from localspec.settings.request import Message
from tests.cli.harness import is_running, wait_for

HOSTILE = {
    "mro": "{{ ''.__class__.__mro__ }}",
    "lipsum": "{{ lipsum.__globals__ }}",
    "cycler": "{{ cycler.__init__ }}",
    "globals": "{{ cycler.__init__.__globals__.os.popen('id').read() }}",
    "attr": "{{ ''|attr('__class__') }}{{ (''|attr('__class__')).mro() }}",
    "format": "{{ '{0.__class__.__mro__}'.format('') }}",
    "mutation": "{{ messages.append(1) }}",
    "undefined": "{{ nothing.at.all }}",
    "random": "{{ [1, 2]|random }}",
    "huge range": "{% for i in range(10**9) %}{% endfor %}",
    "recursion": "{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}",
    "include": "{% include '/etc/passwd' %}",
    "import": "{% import 'os' as os %}",
    "extends": "{% extends 'x' %}",
    "syntax": "{% if",
    "unknown tag": "{% frobnicate %}",
    "unknown filter": "{{ 'a' | frobnicate }}",
    "long": "a" * 2**20,
    "parentheses": "{{ " + "(" * 50_000,
    "nested blocks": "{% if 1 %}" * 10_000,
    "chained filters": "{{ 1" + "|upper" * 15_000 + " }}",
    "many expressions": "{{ x }}" * 18_000,
    "empty output": "{{ '' }}",
    "refusal": "{{ raise_exception('no') }}",
    "division": "{{ 1 / 0 }}",
    "digits": "{{ '9' * 10**5 | int }}{{ 10**9999 }}",
}
# What fills the memory, or writes without end.
LARGE = {
    "repeat": "{{ 'a'*10**9 }}",
    "repeat constant": "{{ 'a'*1000000000 }}",
    "repeat list": "{{ [0]*1000000000 }}",
    "repeat twice": "{{ (['a' * 10**6] * 10**6) | join }}",
    "percent": "{{ '%1000000000d' % 1 }}",
    "percent star": "{{ '%*d' % (1000000000, 1) }}",
    "percent precision": "{{ '%.1000000000f' % 1 }}",
    "percent filter": "{{ '%1000000000s'|format('x') }}",
    "format width": "{{ '{:1000000000}'.format('a') }}",
    "format nested": "{{ '{:{w}}'.format('a', w=10**9) }}",
    "center": "{{ 'a'|center(1000000000) }}",
    "ljust": "{{ 'a'.ljust(1000000000) }}",
    "zfill": "{{ 'a'.zfill(1000000000) }}",
    "expandtabs": "{{ '\\t'.expandtabs(1000000000) }}",
    "indent": "{{ messages|tojson(indent=1000000000) }}",
    "indent filter": "{{ ('a\\n' * 99999)|indent(99999) }}",
    "batch": "{{ [1]|batch(10**9, 0)|list }}",
    "slice": "{{ [1]|slice(10**9, 0)|list }}",
    "strftime": "{{ strftime_now('%01000000000d') }}",
    "doubling": "{% set n = namespace(a='aa') %}{% for i in range(60) %}{% set n.a = n.a ~ n.a %}{% endfor %}",
    "replace": "{% set n = namespace(a='aa') %}{% for i in range(60) %}{% set n.a = n.a.replace('a', 'aa') %}"
    "{% endfor %}",
    "replace filter": "{{ ('a' * 10**5)|replace('a', 'a' * 10**5) }}",
    "join": "{{ range(99999)|join('a' * 10**5) }}",
    "join method": "{{ ('a' * 10**5).join(['b'] * 10**6) }}",
    "translate": "{{ ('a' * 10**5).translate({97: 'b' * 10**5}) }}",
    "urlize": "{{ ('www.a.de ' * 99999)|urlize(target='a' * 9999) }}",
    "output": "{% for i in range(99999) %}{% for j in range(999) %}aaaaaaaaaaaaaaaaaa{% endfor %}{% endfor %}",
}
DAG = (
    "{% set n = namespace(a=[1], b=[1]) %}{% for i in range(99) %}"
    "{% set n.a = [n.a, n.a] %}{% set n.b = [n.b, n.b] %}{% endfor %}"
)
# What takes for ever, most of it inside one call.
SLOW = {
    "loops": "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}",
    "loops without calls": "{% set a = range(99999) %}{% for i in a %}{% for j in a %}{% endfor %}{% endfor %}",
    "filters": "{% for i in range(99999) %}{{ range(99999) | map('string') | select | list | length }}{% endfor %}",
    "power": "{{ 10**(10**10) }}",
    "power of powers": "{{ (7**(10**8)) % 10 }}",
    "product": "{% set n = namespace(x=9**64) %}{% for i in range(40) %}{% set n.x = n.x * n.x %}{% endfor %}",
    "remainder": "{{ (10**(10**7) + 1) % (7**(10**6)) }}",
    "sum": "{% set ns=namespace(l=[[1]*9999]*9999) %}{{ ns.l|sum(start=[])|length }}",
    "sum of tuples": "{{ ([(1,) * 999] * 99999)|sum(start=())|length }}",
    "sort": "{{ ([[1] * 10**6 + [3], [1] * 10**6 + [2]] * 99999)|sort|length }}",
    "sort by parts": "{% set b = 'b' * 10**7 %}{{ ([{'a': b + 'c'}, {'a': b + 'd'}] * 9999)|sort(attribute='a') }}",
    "unique": "{{ ([(1,) * 10**6] * 99999)|unique|list|length }}",
    "groupby": "{{ ([{'a': [1] * 10**6}] * 99999)|groupby('a')|length }}",
    "max": "{{ ([[1] * 10**6 + [3], [1] * 10**6 + [2]] * 99999)|max|length }}",
    "in": "{{ ([1] * 10**6) in [[1] * 999999 + [2]] * 10**7 }}",
    "count": "{% set l = [[1] * 10**6 + [2]] * 10**7 %}{{ l.count([1] * 10**6 + [3]) }}",
    "find": "{% for i in range(9999) %}{{ ('ab' * 10**6).find('ba' * 10**5 + 'c') }}{% endfor %}",
    "compare": DAG + "{{ n.a == n.b }}",
    "repr": DAG + "{{ '%s' % n.a }}",
    "tojson": DAG + "{{ n.a|tojson }}",
    "pprint": DAG + "{{ n.a|pprint }}",
    "striptags": "{{ ('<>' * 10**6)|striptags }}",
    "wordwrap": "{{ ('a ' * 10**7)|wordwrap(1)|length }}{{ ('a ' * 10**7)|wordwrap(2)|length }}",
    "split": "{% for i in range(9999) %}{{ ('a ' * 10**6).split()|length }}{% endfor %}",
    "slices": "{% set l = [1] * 10**7 %}{% for i in range(9999) %}{% set m = l[::-1] %}{% endfor %}",
    "reverse": "{% for i in range(9999) %}{% set m = ([1] * 10**7)|reverse|list %}{% endfor %}",
    "round": "{% for i in range(99999) %}{% for j in range(999) %}{% set m = 1.5|round(300) %}{% endfor %}{% endfor %}",
    "macros": "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(60) }}",
}
EVERY = HOSTILE | LARGE | SLOW
HELLO = Message("user", "Hello")
EXPECTED = "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n"


def run(template: str | None, *messages: Message, **settings: Any) -> Rendered:
    specials = ("<|im_start|>", "<|im_end|>")
    return render(messages or (HELLO,), template, bos="", eos="", specials=specials, **settings)


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer, "MAX_SECONDS", 0.15)


def cpu_of_children() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@pytest.mark.parametrize("name", EVERY)
def test_a_hostile_template_gives_way_in_time(name: str, short: None) -> None:
    """To ChatML, with one warning."""
    started = time.monotonic()
    rendered = run(EVERY[name])
    assert time.monotonic() - started < 30  # seconds; without a limit, for ever
    assert rendered.text == EXPECTED
    (warning,) = rendered.warnings
    assert "cannot be used" in warning
    assert "\n" not in warning
    assert len(warning) < 300


@pytest.mark.parametrize("name", ["sum", "compare", "power of powers"])
def test_one_call_ends_with_the_time(name: str, short: None) -> None:
    """No look at a clock between two calls would end these. The time is the processor's, whatever else is running."""
    RENDERER.close()
    before = cpu_of_children()
    assert "takes longer than 0.15 s" in run(SLOW[name]).warnings[0]
    RENDERER.close()
    assert cpu_of_children() - before < 3, "a second process rendered ChatML"


def test_all_renderings_of_a_template_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is short enough; a template is rendered twice, and twice more where it refuses the system message."""
    asked: list[float] = []

    def ask(question: dict[str, Any]) -> dict[str, Any]:
        asked.append(question["seconds"])
        return {"refused": "no", "by_itself": True, "seconds": 1.5}

    monkeypatch.setattr(RENDERER, "ask", ask)
    with pytest.raises(IncompatibleError, match="no"):
        run("x", Message("system", "Be brief."), HELLO, is_explicit=True)
    assert asked == [2.0, 0.5]


def test_a_hostile_template_that_was_asked_for_is_an_error() -> None:
    with pytest.raises(IncompatibleError, match="undefined") as caught:
        run("{{ nothing.at.all }}", is_explicit=True)
    assert "--raw" in caught.value.hint
    with pytest.raises(IncompatibleError, match="empty"):
        run("", is_explicit=True)


def test_the_time_ends_templates_of_other_threads(short: None) -> None:
    """And of several at once: they take turns."""
    results: list[Rendered] = []
    threads = [threading.Thread(target=lambda: results.append(run(SLOW["loops"]))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert ["takes longer" in result.warnings[0] for result in results] == [True, True]


@pytest.mark.skipif(sys.platform != "linux", reason="no other system keeps a limit of the address space")
def test_memory_is_bounded_and_the_next_rendering_has_all_of_it() -> None:
    large = "{% set a = 'a' * (100 * 2**20) %}{{ messages[0].content }}"
    assert run(large).text == "Hello"
    pid = RENDERER.pid
    for _ in range(3):
        assert "too much memory" in run(LARGE["doubling"]).warnings[0]
    assert run(large).text == "Hello"
    assert RENDERER.pid == pid, "nothing of this ends the process"


def test_a_process_that_died_is_replaced() -> None:
    run(CHATML)
    pid = RENDERER.pid
    assert pid is not None
    os.kill(pid, signal.SIGKILL)
    os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert run(CHATML).text == EXPECTED
    assert RENDERER.pid != pid


def test_a_process_that_stands_still_is_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    """Processor time passes only while it runs; the clock bounds the rest."""
    monkeypatch.setattr(renderer, "MAX_WAIT", 0.2)
    monkeypatch.setattr(renderer, "RENDERER", Renderer())
    command = [sys.executable, "-c", "import time; time.sleep(600)"]
    started = subprocess.Popen
    monkeypatch.setattr(subprocess, "Popen", lambda _, **settings: started(command, **settings))
    with pytest.raises(ResourceError, match="built-in chat template cannot be rendered: it takes longer"):
        run(None)


def test_a_process_that_cannot_work_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(renderer, "RENDERER", Renderer())
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with pytest.raises(InternalError, match="left with status 1"):
        run(CHATML)
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    with pytest.raises(ResourceError, match="cannot be started: No such file"):
        run(CHATML)


def test_the_process_leaves_with_the_one_that_started_it() -> None:
    """Also where that one was killed: its end of the pipe is closed then."""
    code = (
        "import os, signal\n"
        "from localspec.prompt.renderer import RENDERER, Program\n"
        "from datetime import datetime\n"
        "Program('x', datetime.now()).render({}, 0)\n"
        "print(RENDERER.pid, flush=True)\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=False, timeout=60)
    pid = int(done.stdout)
    wait_for(lambda: not is_running(pid))
