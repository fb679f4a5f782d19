"""Checks that answers under many JSON schemas are valid: those of the JSON-Schema-Test-Suite, and arguments of tools.

  pip download --no-deps --no-binary jsonschema jsonschema && tar xzf jsonschema-*.tar.gz     has the suite
  schemas.py --suite jsonschema-*/json                                  which schemas are kept, and why others are not
  schemas.py --suite jsonschema-*/json -m TARGET.gguf --state out.jsonl            an answer each, at every temperature

Schemas of the suite count where a valid instance of theirs is there. Each that cannot be kept is refused in a line, and
these are counted by their reasons. The suite's instances are read through the masks of the bundled model: one that
is not valid must not pass. Those that are valid may be refused, since a form has no white space, one order of
properties and one way to write a number.

With a model, every answer that is whole must be valid by the package jsonschema. Answers stay in --state, and the next
call goes on there. Neither time nor load changes what is found.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import jsonschema
from tool_arguments import TOOL_ARGUMENTS

from localspec.backends.model import Model
from localspec.engine import events
from localspec.engine.constraint import is_allowed, is_whole
from localspec.errors import LocalspecError, UsageError
from localspec.prompt.form import compiled
from localspec.prompt.grammar import Grammars
from localspec.prompt.prompt import Tokenised
from localspec.session.loaded_pair import LoadedPair
from localspec.session.loading import load
from localspec.settings.request import LoadSettings, Message, Request, Sampling, Speculation

FORMATS = jsonschema.FormatChecker(["date", "email", "ipv4", "ipv6", "uuid"])  # those it judges without other packages
Answer = dict[str, Any]


@dataclass(frozen=True)
class Case:
    """A schema with what the model is asked, and instances with whether each is valid."""

    name: str
    schema: Any
    instances: tuple[tuple[Any, bool], ...] = ()

    def is_valid(self, instance: Any) -> bool:
        """Whether the package jsonschema takes an instance."""
        return jsonschema.Draft202012Validator(self.schema, format_checker=FORMATS).is_valid(instance)


def cases(suite: Path | None) -> list[Case]:
    """Return the arguments of tools, and each schema of the suite that some instance fits."""
    found = {_key(schema): Case(name, schema) for name, schema in TOOL_ARGUMENTS.items()}
    if suite is not None:
        paths = sorted((suite / "tests" / "draft2020-12").glob("*.json"))
        if not paths:
            raise UsageError(f"{suite} has no tests/draft2020-12", hint="the folder of the JSON-Schema-Test-Suite")
        for path in paths:
            for group in json.loads(path.read_text(encoding="utf-8")):
                tests = tuple((test["data"], test["valid"]) for test in group["tests"])
                if any(valid for _, valid in tests):
                    case = Case(f"{path.stem}: {group['description']}", group["schema"], tests)
                    found.setdefault(_key(case.schema), case)
    return list(found.values())


def _key(schema: Any) -> str:
    return json.dumps(schema, sort_keys=True)


def kept(every: Sequence[Case]) -> tuple[list[Case], Counter[str]]:
    """Return the cases that a form can keep, and how many are refused for what."""
    found, why = [], Counter[str]()
    for case in every:
        try:
            compiled(("schema", json.dumps(case.schema)))
        except UsageError as error:
            why[reason(error.message)] += 1
        else:
            found.append(case)
    return found, why


def reason(message: str) -> str:
    """Return what a refusal says without what is particular to one schema."""
    keyword = re.search(r"(\$?\w+) is a keyword that cannot be kept", message)
    if keyword:
        return f"`{keyword[1]}`"
    message = message.removeprefix("--schema cannot be kept: ").removeprefix("--schema: ")
    if "nothing is looked up elsewhere" in message:
        return "`$ref` to another file"
    if "not disjoint" in message:
        return "`patternProperties` that overlap"
    number = re.search(r"whole number|positive integer", message)
    return "a bound that is no whole number, as in 2.0" if number else message.partition(" '")[0].partition(". ")[0]


def read_instances(every: Sequence[Case], model: Model) -> Iterator[tuple[Case, Any, bool, bool]]:
    """Yield every instance: its case, the instance, whether it is valid, and whether the form lets it pass."""
    owner = Grammars()
    for case in every:
        for instance, valid in case.instances:
            constraint = owner.constraint(Request(schema=json.dumps(case.schema)), model, Tokenised([1]))
            assert constraint is not None
            text, passes = [1], True
            for token in model.tokenize(json.dumps(instance, separators=(",", ":"), ensure_ascii=False)):
                passes = passes and is_allowed(constraint.allowed(text), token)
                text.append(token)
            yield case, instance, valid, passes and is_whole(constraint, text, owner.ends)


def answers(every: Sequence[Case], pair: LoadedPair, asked: argparse.Namespace, done: set[Any]) -> Iterator[Answer]:
    """Yield an answer to each case at each temperature that is not `done`."""
    for n, case in enumerate(every):
        for temperature in asked.temps:
            key = [Path(asked.model).stem, asked.method, case.name, temperature]
            if tuple(key) in done:
                continue
            schema = json.dumps(case.schema)
            asks = f"Write JSON: {case.name}."
            request = Request(
                prompt=asks if asked.raw else None,
                messages=() if asked.raw else (Message("user", asks),),
                max_tokens=asked.n,
                schema=schema,
                sampling=Sampling(temperature=temperature, seed=n),
                speculation=Speculation(method=asked.method, k=3 if asked.method == "draft-model" else None),
            )
            yield {"key": key, **answered(case, pair, request)}


def answered(case: Case, pair: LoadedPair, request: Request) -> Answer:
    """Return one answer: its text, how it ended, whether it is whole, whether it is valid."""
    text, forced, tokens = "", 0, 0
    for event in pair.answer(request):
        if isinstance(event, events.Committed):
            text += event.text
            tokens += len(event.out)
            forced += event.n_forced
        if isinstance(event, events.Finished):
            text += event.tail
            reason, whole = event.reason, event.is_whole
    valid = whole and case.is_valid(json.loads(text))
    told = {"reason": reason, "is_whole": whole, "is_valid": valid, "tokens": tokens, "forced": forced}
    return told | ({} if valid else {"text": text})


def told(path: Path) -> list[Answer]:
    """Return the answers of earlier calls."""
    lines = path.read_text(encoding="utf-8").splitlines() if path.exists() else []
    return [json.loads(line) for line in lines]


def table(found: Sequence[Answer]) -> str:
    """Return what was found, as Markdown."""
    lines = ["| model, method, temperature | answers | whole | valid | cut | tokens | forced |", "|---" * 7 + "|"]
    for group in dict.fromkeys((*each["key"][:2], each["key"][3]) for each in found):
        of = [each for each in found if (*each["key"][:2], each["key"][3]) == group]
        whole = sum(each["is_whole"] for each in of)
        tokens, forced = (sum(each[name] for each in of) for name in ("tokens", "forced"))
        name = f"{group[0]}, {group[1]}, {group[2]:g}"
        valid = sum(each["is_valid"] for each in of)
        lines.append(
            f"| {name} | {len(of)} | {whole} | {valid} | {len(of) - whole} | {tokens} | {100 * forced / tokens:.0f} % |"
        )
    return "\n".join(lines)


def options() -> argparse.ArgumentParser:
    """Return the options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--suite", type=Path, help="the folder of the JSON-Schema-Test-Suite; its tools alone without")
    parser.add_argument("-m", "--model", help="the target that answers")
    parser.add_argument("-d", "--draft", help="the draft")
    parser.add_argument("--raw", action="store_true", help="continue the prompt, without a chat template")
    parser.add_argument("--method", default="auto")
    parser.add_argument("--temps", default="0,0.8", type=lambda text: [float(one) for one in text.split(",")])
    parser.add_argument("--threads", type=int, help="of the engine: one where other programs use the processors")
    parser.add_argument("-n", type=int, default=64, help="tokens of an answer at most")
    parser.add_argument("--state", type=Path, default=Path("schemas.jsonl"), help="where answers are kept")
    return parser


def check_suite(every: Sequence[Case], n: int, why: Counter[str]) -> bool:
    """Print what the forms make of the suite; return whether no wrong instance passed."""
    print(f"{len(every)} of {n} schemas are kept. Refused:")
    print("\n".join(f"{count:5} {what}" for what, count in why.most_common()))
    wrong, counts = [], Counter[str]()
    with Model(Path(str(files("localspec.models"))) / "storyteller" / "target-q8_0.gguf") as model:
        for case, instance, valid, passes in read_instances(every, model):
            counts[f"{'valid' if valid else 'not valid'}, {'passes' if passes else 'does not'}"] += 1
            if passes and not valid:
                wrong.append(f"{case.name}: {json.dumps(instance)}")
    print("\n".join(f"{count:5} instances {what}" for what, count in sorted(counts.items())))
    print("\n".join(f"PASSES THOUGH NOT VALID {one}" for one in wrong))
    return not wrong


def main() -> int:
    """Check the suite, then the answers of a model if one is named; return 1 where anything is not valid."""
    asked = options().parse_args()
    every = cases(asked.suite)
    found, why = kept(every)
    if asked.model is None:
        return 0 if check_suite(found, len(every), why) else 1
    done = told(asked.state)
    loading = events.Returning(
        load(LoadSettings(asked.model, asked.draft, ctx=2048, threads=asked.threads), lambda: False)
    )
    for _ in loading:
        pass
    with closing(loading.result) as pair, asked.state.open("a", encoding="utf-8") as file:
        for answer in answers(found, pair, asked, {tuple(each["key"]) for each in done}):
            done.append(answer)
            print(json.dumps(answer), file=file, flush=True)
    print(table(done))
    wrong = [each for each in done if each["is_whole"] and not each["is_valid"]]
    print("\n".join(f"NOT VALID {each['key']} {each['text']}" for each in wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except LocalspecError as error:
        sys.exit(f"{error.message}; {error.hint}")
