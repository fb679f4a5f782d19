"""Whether the model knows of the form that its answer must have: from the prompt, or by --tell-schema."""

import pytest

from localspec.settings.structure import schema_text
from tests.cli.harness import FAKE, Terminal, run

HINT = "the model is told nothing of the form: name its fields in the prompt, or add --tell-schema"


@pytest.mark.parametrize(
    ("prompt", "more", "is_told"),
    [("Extract the invoice", (), True), ("Extract its NUMBER", (), False), ("Extract", ("-q",), False)],
)
def test_a_person_is_told_where_the_prompt_names_no_field(prompt: str, more: tuple[str, ...], is_told: bool) -> None:
    terminal = Terminal(["run", *more, "--schema", "number, total float", prompt], program=FAKE, columns=100)
    terminal.wait()
    assert (HINT in terminal.text) == is_told
    assert HINT.encode() not in run("run", "--schema", "number, total float", prompt).stderr, "programs do not read it"


def test_the_schema_goes_into_the_prompt() -> None:
    run("run", "--schema", "number", "--tell-schema", "Extract the invoice")
    schema = schema_text("number")
    shown = run("logs", "show").stdout.decode()
    assert f"You: Extract the invoice\n\nThe answer is JSON of this schema: {schema}\n" in shown
    done = run("run", "--tell-schema", "hi")
    assert (done.returncode, done.stderr.decode()) == (
        2, "localspec: --tell-schema needs a schema — try: --schema 'name, age int'\n"
    )  # fmt: skip
