"""The catalogue: names for models of the hub, what drafts for them, and names of a person's own.

`catalog.toml` beside this file is the built-in one, `catalog.toml` in the configuration folder the user's, whose
entries win. A size or a draft in it is a suggestion; the hub's answer and the vocabularies decide.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from localspec.errors import UsageError
from localspec.models.catalog_file import CatalogModel, CatalogPair, mistake, read_catalog
from localspec.models.names import Alias, DraftChoice, ModelName, PairName
from localspec.sanitize import shown
from localspec.settings.folders import config_folder

BUILTIN = Path(__file__).with_name("catalog.toml")


@dataclass(frozen=True, slots=True)
class Catalog:
    """All entries by name, the user's over the built-in ones.

    `shadowed` are the built-in models whose name is that of a pair of the user's: they go on drafting for others.
    """

    models: Mapping[str, CatalogModel]
    pairs: Mapping[str, CatalogPair]
    shadowed: Mapping[str, CatalogModel] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Return every name, sorted."""
        return sorted({*self.models, *self.pairs})

    def pair(self, name: str) -> PairName | None:
        """Return what a name stands for, with names of the catalogue inside it replaced; None for an unknown one."""
        return self._pair(name, ())

    def model(self, name: str) -> ModelName | None:
        """Return the one model that a name stands for: of a pair its target."""
        pair = self.pair(name)
        return None if pair is None else pair.target

    def draft(self, name: str) -> ModelName | None:
        """Return what a name stands for as a draft: of a pair its draft if it has one, else the model itself."""
        return self._draft(name, ())

    def drafts_of(self, model: CatalogModel) -> list[CatalogModel]:
        """Return the models that draft for one, the preferred first."""
        return [self.models.get(name) or self.shadowed[name] for name in model.drafts]

    def of_repo(self, repo: str) -> CatalogModel | None:
        """Return the model whose repository this is."""
        return next((model for model in self.models.values() if model.repo.lower() == repo.lower()), None)

    def _pair(self, name: str, above: tuple[str, ...]) -> PairName | None:
        entry = self.pairs.get(name)
        if entry is None:
            model = self.models.get(name)
            if model is None:
                return None
            return PairName(model.source, next((one.source for one in self.drafts_of(model)), DraftChoice.UNSET))
        if name in above:
            raise UsageError(f"the names {' and '.join(above)} stand for each other", hint=f"localspec pairs rm {name}")
        target, draft = entry.pair.target, entry.pair.draft
        if isinstance(target, Alias):
            inner = self._pair(target.name, (*above, name))
            if inner is not None:  # else whoever looks it up says so
                target = inner.target
                draft = inner.draft if draft is DraftChoice.UNSET else draft
        if isinstance(draft, Alias):
            draft = self._draft(draft.name, (*above, name)) or draft
        return PairName(target, draft)

    def _draft(self, name: str, above: tuple[str, ...]) -> ModelName | None:
        if name in self.models and name not in self.pairs:
            return self.models[name].source
        pair = self._pair(name, above)
        if pair is None:
            return None
        return pair.target if isinstance(pair.draft, DraftChoice) else pair.draft


def user_path() -> Path:
    """Return where the user's catalogue is, or would be."""
    return config_folder() / "catalog.toml"


def load_catalog(user: Path | None = None) -> Catalog:
    """Read both catalogues. Raises UsageError for the first mistake in one."""
    built_models, built_pairs = read_catalog(BUILTIN, is_users=False)
    models, pairs = read_catalog(user or user_path(), is_users=True)
    shadowed = {name: built_models.pop(name) for name in pairs if name in built_models}
    for name in models:
        built_pairs.pop(name, None)
    catalog = Catalog({**built_models, **models}, {**built_pairs, **pairs}, shadowed)
    for model in catalog.models.values():
        for draft in model.drafts:
            if draft not in catalog.models and draft not in shadowed:
                path = user or user_path() if model.is_users else BUILTIN
                raise mistake(
                    path, f"models.{model.name}", f"its draft '{shown(draft)}' is not a model of the catalogue"
                )
    return catalog
