"""`--verifier`: what an edge loads. The verifier says what it holds; its vocabulary is fetched and kept."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

from localspec.models.available import edge_draft
from localspec.remote.connection import KEY, Address, Connection
from localspec.remote.vocabulary import fetched, look
from localspec.settings.request import LoadSettings


def edge_settings(load: LoadSettings, draft: str | None) -> LoadSettings:
    """Return how to load an edge whose draft is called so, None for copies alone.

    Raises NetworkError, and what its verifier refuses; a draft that is not here is NotFoundError.
    """
    return drafting_for(load, edge_draft(draft))


def drafting_for(load: LoadSettings, drafting: Path | None) -> LoadSettings:
    """Return how to load an edge: its verifier's vocabulary in the place of the target, and the file `drafting`."""
    load = _with_key_read(load)
    assert load.verifier is not None
    connection = Connection.open(Address(load.verifier, load.verifier_key_file, load.verifier_ca))
    try:
        facts = look(connection)
        target = fetched(connection, facts)
    finally:
        connection.close()
    name = f"{facts.name} at {connection.address.name}" + ("" if drafting is None else f"+{drafting.stem}")
    return replace(load, target=str(target), draft=None if drafting is None else str(drafting.absolute()), name=name)


def _with_key_read(load: LoadSettings) -> LoadSettings:
    """Return the settings without a key file that is a pipe, such as the shell's <(command).

    It is read once, and by this process alone: the worker finds the key in the environment.
    """
    if load.verifier is None or load.verifier_key_file is None or not Path(load.verifier_key_file).is_fifo():
        return load
    os.environ[KEY] = Address(load.verifier, load.verifier_key_file).key() or ""
    return replace(load, verifier_key_file=None)


def draft_alone(load: LoadSettings) -> LoadSettings | None:
    """Return how to load an edge's draft as a target of its own, None where a model drafts nothing."""
    if load.draft is None:
        return None
    here = replace(load, verifier=None, verifier_key_file=None, verifier_ca=None)
    return replace(here, target=load.draft, draft=None, name=Path(load.draft).stem)
