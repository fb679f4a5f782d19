"""`--verifier`: what an edge loads. The verifier says what it holds; its vocabulary is fetched and kept."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from localspec.errors import UsageError
from localspec.models.names import DraftChoice, parse
from localspec.models.store import find_model
from localspec.remote.connection import Address, Connection
from localspec.remote.vocabulary import fetched, look
from localspec.settings.request import LoadSettings


def edge_settings(load: LoadSettings, model: str | None, draft: str | None) -> LoadSettings:
    """Return how to load an edge: the verifier's vocabulary in the place of the target, and the draft that is named.

    Raises NetworkError, and what its verifier refuses; a draft that is not here is NotFoundError.
    """
    return drafting_for(load, _draft(load, model, draft))


def drafting_for(load: LoadSettings, drafting: Path | None) -> LoadSettings:
    """Return how to load an edge whose draft is in the file `drafting`, None for copies alone. Raises the same."""
    assert load.verifier is not None
    connection = Connection.open(Address(load.verifier, load.verifier_key_file, load.verifier_ca))
    try:
        facts = look(connection)
        target = fetched(connection, facts)
    finally:
        connection.close()
    name = f"{facts.name} at {connection.address.name}" + ("" if drafting is None else f"+{drafting.stem}")
    return replace(load, target=str(target), draft=None if drafting is None else str(drafting.absolute()), name=name)


def _draft(load: LoadSettings, model: str | None, draft: str | None) -> Path | None:
    """Return the file of the draft: --draft, or else the --model that was typed; None for copies alone."""
    from localspec.cli.settings import is_chosen  # late: it imports this module, when it needs it

    named = draft or (model if is_chosen("model") else None)
    if named in (None, "none"):
        return None
    hint = f"--verifier {load.verifier} -m DRAFT.gguf, or no -m: copies are drafted then"
    if named == "auto" or (draft is not None and is_chosen("model")):
        raise UsageError("the verifier has the target: one model is enough here, the draft", hint=hint)
    assert named is not None
    if parse(named).draft is not DraftChoice.UNSET:
        raise UsageError(f"the verifier has the target, and {named} names two models", hint=hint)
    return find_model(named)
