"""`localspec methods` and `localspec explain` as people and programs read them; the generated pages are up to date."""

import json
import re
import subprocess
import sys
from typing import get_type_hints, is_typeddict

from localspec.chat.commands import TABLE
from localspec.cli.app import commands
from localspec.cli.names_explained import named
from localspec.errors import exit_codes
from localspec.settings.declaration import declared
from localspec.settings.request import LoadSettings, Request, Sampling, Speculation
from localspec.speculation import registered
from localspec.ui import json_fields
from localspec.ui.explain import AXES
from localspec.ui.explain import explain as explanation_of
from localspec.ui.glossary import TERMS
from tests.cli.harness import ROOT, environment, run


def output(*args: str) -> str:
    done = run(*args)
    assert done.returncode == 0, done.stderr.decode()
    assert not done.stderr
    return done.stdout.decode()


def test_methods_lists_everything() -> None:
    """Every name, every option with default and range, every paper, and which rules are lossless."""
    text = output("methods")
    for name in (*registered("method"), *registered("tree"), *registered("length"), *registered("verify")):
        assert f"  {name} " in text, name
    text = " ".join(text.split())
    for word in ("-o min_match=1", "(from 1 to 32)", "2411.04975", "needs a draft model", "branch=on", "NOT lossless"):
        assert word in text, word
    assert "confidence:0.4" in text
    assert "from 0 to 1 (default 0.4)" in text


def test_methods_json() -> None:
    """The same, as strict JSON: an open range is null."""

    def refuse(word: str) -> None:
        raise AssertionError(word)

    listed = json.loads(output("methods", "--json"), parse_constant=refuse)
    assert [one["name"] for one in listed["methods"]] == list(registered("method"))
    assert [one["name"] for one in listed["tree"]] == list(registered("tree"))
    assert [one["name"] for one in listed["length"]] == list(registered("length"))
    assert [one["name"] for one in listed["verify"]] == list(registered("verify"))
    for one in (entry for axis in listed.values() for entry in axis):
        assert {"summary", "usage", "needs", "papers", "is_lossless", "options"} <= one.keys()
    lookahead = next(one for one in listed["methods"] if one["name"] == "lookahead")
    window = lookahead["options"][0]
    assert (window["name"], window["low"], window["high"], window["type"]) == ("W", 1, 16, "int")


def test_explain_lists_its_terms() -> None:
    text = output("explain")
    assert re.search(r"^acceptance +the share of the guesses that were accepted$", text, re.M)
    assert [line.split("  ")[0] for line in text.split("\n\n")[0].splitlines()] == [t.name for t in TERMS.values()]
    assert [one["term"] for one in json.loads(output("explain", "--json"))["terms"]] == [t.name for t in TERMS.values()]


def script(name: str, *args: str) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [sys.executable, f"scripts/{name}.py", *args], capture_output=True, text=True, cwd=ROOT, env=environment()
    )
    assert done.returncode == 0, done.stderr
    return done


def test_the_generated_pages_are_up_to_date() -> None:
    script("docs", "--check")


def every_name() -> list[str]:
    """Return what people type or read: options, keys, fields, commands, codes, kinds, terms, rules."""
    told = [one for _, each in commands() for one in each.params if getattr(one, "help", None)]
    options = [name for one in told for name in (*one.opts, *one.secondary_opts)]
    return [
        *(name for name in options if name.startswith("-")),
        *(each.key for holder in (LoadSettings, Request, Sampling, Speculation) for each in declared(holder)),
        *(each.name for holder in (LoadSettings, Request, Sampling, Speculation) for each in declared(holder)),
        *(field for kind in vars(json_fields).values() if is_typeddict(kind) for field in get_type_hints(kind)),
        *(" ".join(path) for path, _ in commands()),
        *(f"/{name}" for each in TABLE.commands for name in (each.name, *each.aliases)),
        *(f"exit code {code}" for code in exit_codes()),
        *(kind for kind, _ in exit_codes().values() if kind),
        *(str(code) for code in exit_codes()),
        *(term for term in TERMS),
        *(name for axis in AXES for name in registered(axis)),
        *("stop", "length", "context", "interrupted", "error", "accepted", "corrected", "forced"),  # values in --json
        *("LOCALSPEC_TEMP", "LOCALSPEC_KEEP_ALIVE", "--keep-alive", "keep-alive", "keep_alive", "draft_n_accepted"),
    ]


def test_every_name_is_explained() -> None:
    """`keep-alive` was found nowhere."""
    for name in dict.fromkeys(every_name()):
        assert named(name) or explanation_of(name), name
