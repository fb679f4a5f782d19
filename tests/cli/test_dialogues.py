"""What is typed is answered as it was recorded: `python -m tests.cli.dialogue NAME` records a deliberate change."""

import pytest

from tests.cli.dialogue import FOLDER, Section, answered, sections
from tests.cli.harness import needs_pair

DIALOGUES = {
    f"{file.stem}: {each.title}": each
    for file in sorted(FOLDER.glob("*.txt"))
    for each in sections(file.read_text(encoding="utf-8"))
}


@needs_pair
@pytest.mark.parametrize("section", DIALOGUES.values(), ids=DIALOGUES)
def test_it_is_answered_as_recorded(section: Section) -> None:
    assert answered(section).splitlines() == section.text.splitlines()
