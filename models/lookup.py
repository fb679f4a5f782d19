"""Names that are looked up among the models of this machine, and what was meant by one that is none of them.

The hub's cache and other programs keep files under other names than their paths.
"""

import os
import re
import shlex
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from localspec.errors import IntegrityError, LocalspecError, NotFoundError, UsageError, near_name
from localspec.models.names import FORMS, NEAR, HubName, PairName, PathName, nearest, parse_model
from localspec.sanitize import shown


def find_cached(name: HubName) -> tuple[Path, HubName] | None:
    from localspec.models.hub.cache import Cache
    from localspec.models.hub.files import full_name
    from localspec.models.hub.pulled import Receipts
    from localspec.models.other_programs import of_hub  # late: it reads what other programs keep

    files = Cache().find(name)
    if files is None:
        model = of_hub(name)
        return None if model is None else (model.path, name)
    receipts = Receipts()
    for file in files:
        if not receipts.is_unchanged(file.blob):
            message = f"{shown(file.name)} of {name.repo} has changed since it was pulled"
            raise IntegrityError(message, hint=f"localspec pull {name}")
    return files[0].link, full_name(name, files[0].commit[:7], files[0].name)


def placed(name: PathName) -> PathName:
    """Return where the file lies that `name` is the bare name of: here, else in a folder of another program. Raises
    UsageError, with the list, for several. A name that is found nowhere comes back as it is."""
    if os.path.dirname(name.path) or os.path.lexists(name.path) or "\0" in name.path:
        return name
    from localspec.models.other_programs import by_file_name  # late, as above

    model = by_file_name(name.path)
    return name if model is None else PathName(str(model.path))


def unknown_name(name: str, names: list[str]) -> NotFoundError:
    """Return the error of a name that is none of `names`, with the nearest of these and of the models that are here."""
    if os.path.isfile(name):
        message = f"there is no pair called '{shown(name)}'"
        return NotFoundError(message, hint=f"./{shown(name)} for the file of that name")
    from localspec.models.other_programs import own_names  # late: it reads what other programs keep

    here = _beginnings(own_names())
    begin, known = near_name(name.lower(), here, NEAR), nearest(name, names)
    guesses = ({begin: shown(here[begin])} if begin else {}) | ({known.lower(): known} if known else {})
    close = guesses.get(near_name(name.lower(), guesses, 0.0))
    hint = f"Did you mean '{close}'?" if close else f"{FORMS}; known names: localspec pairs list"
    return NotFoundError(f"there is no pair called '{shown(name)}'", hint=hint)


def with_known_name(error: UsageError, typed: str) -> UsageError:
    """Return the error of a name as Ollama writes them, such as llama3.2:1b, with the nearest one here, or the
    catalogue's."""
    if not re.fullmatch(r"[\w.-]+:[\w.-]+", typed) or "Hugging Face" not in error.message:
        return error
    from localspec.models.catalog import load_catalog  # late: few names are wrong
    from localspec.models.other_programs import own_names

    close = nearest(typed.lower(), own_names()) or nearest(typed, load_catalog().names())
    return UsageError(error.message, hint=f"Did you mean '{close}'?" if close else error.hint)


def here_instead(wanted: HubName) -> str | None:
    from localspec.models.catalog import load_catalog  # late, as above
    from localspec.models.other_programs import with_part

    known = load_catalog().of_repo(wanted.repo)
    repo = wanted.repo.partition("/")[2]
    models = with_part(known.name if known is not None else re.sub("-gguf$", "", repo, flags=re.IGNORECASE))
    return shown(models[0].label) if models else None


def name_local(missing: LocalspecError) -> None:
    wanted = parse_model(str(missing.detail["missing"][0]))
    local_name = here_instead(wanted) if isinstance(wanted, HubName) else None
    if local_name is not None and local_name not in missing.hint:
        missing.hinted(f"{local_name}, which is here, or {missing.hint}")


def missing_file(path: str) -> NotFoundError:
    """Return the error of a path where no file is, with the nearest name in its folder, or of a model that is here.
    Where names of the user's own stand for it, the error says how these are mended."""
    from localspec.models.catalog import load_catalog  # late, as above
    from localspec.models.hub.files import is_model
    from localspec.models.other_programs import foreign_models

    folder, name = os.path.split(path)
    try:
        beside = [os.path.join(folder, each) for each in os.listdir(os.path.expanduser(folder) or ".")]
    except (OSError, ValueError):
        beside = []
    known = (*(model.path.name for model in foreign_models()), *filter(is_model, sorted(beside, reverse=True)))
    by_file = {os.path.basename(each).lower(): shown(each) for each in known}
    close = by_file.get(near_name(name.lower(), by_file, NEAR), "")
    hint = f"Did you mean '{close}'?" if close else "Check the path."
    owners = []
    with suppress(UsageError):  # a mistake in the catalogue is told where it is asked
        owners = load_catalog().of_path(path)
    if owners:
        own_names, new = [f"'{each.name}'" for each in owners], PathName(close or "NEW.gguf")
        stand = "stands" if len(owners) == 1 else "stand"
        commands = [f"localspec pairs add {each.name} {_replaced(each.pair, path, new)} --replace" for each in owners]
        hint = " and ".join(commands) + (f", or localspec pairs rm {owners[0].name}" if len(owners) == 1 else "")
        return NotFoundError(f"{shown(path)}, for which {' and '.join(own_names)} {stand}, does not exist", hint=hint)
    return NotFoundError(f"{shown(path)} does not exist", hint=hint)


def _replaced(pair: PairName, path: str, new: PathName) -> str:
    draft = new if str(pair.draft) == path else pair.draft
    return shlex.quote(shown(str(PairName(new if str(pair.target) == path else pair.target, draft)), 4096))


def _beginnings(names: Iterable[str]) -> dict[str, str]:
    """Return the shortest name for each beginning, in small letters, up to a sign between the parts of a name."""
    longest_first = sorted(names, key=len, reverse=True)
    return {name[: end.start()].lower(): name for name in longest_first for end in re.finditer(r"[-_:.]|$", name)}
