"""Files that were brought here under another name than their path: by the hub's cache, or by other programs."""

from __future__ import annotations

import os
from pathlib import Path

from localspec.errors import IntegrityError
from localspec.models.names import HubName, PathName
from localspec.sanitize import shown


def find_cached(name: HubName) -> tuple[Path, HubName] | None:
    """Return a cached model's first part, and its name with commit and quantisation."""
    from localspec.models.foreign import of_hub  # late: it reads what other programs keep
    from localspec.models.hub.cache import Cache
    from localspec.models.hub.files import quant_of
    from localspec.models.hub.pulled import Receipts

    files = Cache().find(name)
    if files is None:
        found = of_hub(name)
        return None if found is None else (found.path, name)
    receipts = Receipts()
    for file in files:
        if not receipts.is_unchanged(file.blob):
            raise IntegrityError(
                f"{shown(file.name)} of {name.repo} has changed since it was pulled",
                hint=f"localspec pull {name}",
            )
    quant = quant_of(files[0].name)
    is_named = name.file is not None or quant == "?"
    return files[0].link, HubName(name.repo, files[0].commit[:7], None if is_named else quant, name.file)


def placed(name: PathName) -> PathName:
    """Return where the file lies that `name` is the bare name of: here, else in a folder of another program.

    Raises UsageError, with the list, for several. A name that is found nowhere comes back as it is.
    """
    if os.path.dirname(name.path) or os.path.lexists(name.path) or "\0" in name.path:
        return name
    from localspec.models.foreign import by_file_name  # late, as above

    found = by_file_name(name.path)
    return name if found is None else PathName(str(found.path))
