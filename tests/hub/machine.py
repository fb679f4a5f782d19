"""A machine of a test's own: folders for the hub's cache and localspec's state, and localspec run there."""

import hashlib
import json
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest.mock import patch

from huggingface_hub import constants

from localspec.models.hub.cache import Cache
from localspec.models.hub.pulled import Receipts
from localspec.models.hub.remote import Hub
from localspec.models.names import HubName, parse_model
from localspec.models.pull import Pull, PullPlan, make_plan, pull_all
from tests.cli.harness import REAL, environment, localspec, run_engine
from tests.hub.server import Server

TARGET = "hf:tales/storyteller-GGUF:Q8_0"
DRAFT = "hf:tales/draft-GGUF:Q8_0"
PAIR = f"{TARGET}+{DRAFT}"
PARTS = "hf:tales/parts-GGUF:Q8_0"


@dataclass
class Machine:
    """Where one test pulls to."""

    server: Server
    folder: Path
    pauses: list[float] = field(default_factory=list)

    @property
    def cache(self) -> Cache:
        return Cache(self.folder / "hf" / "hub")

    @property
    def receipts(self) -> Receipts:
        return Receipts(self.folder / "home" / "state" / "receipts")

    @property
    def env(self) -> dict[str, str]:
        return {
            "HF_ENDPOINT": self.server.endpoint,
            "HF_HOME": str(self.folder / "hf"),
            "LOCALSPEC_HOME": str(self.folder / "home"),
            "HF_TOKEN": "",
        }

    def call(self, *args: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        endpoint = self.server.endpoint
        places = {
            "ENDPOINT": endpoint,
            "HUGGINGFACE_CO_URL_TEMPLATE": endpoint + "/{repo_id}/resolve/{revision}/{filename}",
            "HF_HUB_CACHE": str(self.folder / "hf" / "hub"),
        }
        with patch.multiple(constants, **places):
            return run_engine(*args, stdin=stdin, env=self.env)

    def call_apart(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.CompletedProcess[bytes]:
        """Run localspec to its end in a process of its own, with another environment."""
        return localspec(*args, env={**self.env, **(env or {})})

    def json(self, *args: str, code: int = 0, **more: Any) -> dict[str, Any]:
        """Run localspec with --json; return the object."""
        done = self.call(*args, "--json", **more)
        assert done.returncode == code, done
        made: dict[str, Any] = json.loads(done.stdout)
        return made

    def start(self, *args: str, env: Mapping[str, str] | None = None) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*REAL, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
            env=environment({**self.env, **(env or {})}),
        )  # fmt: skip

    def plan(self, *names: str) -> PullPlan:
        """Plan in this process; waits between tries are noted and not taken."""
        wanted = [name for name in map(parse_model, names) if isinstance(name, HubName)]
        return make_plan(wanted, self.hub(), self.cache, self.receipts)

    def pull(self, *names: str) -> Pull:
        return self.carry_out(self.plan(*names))

    def carry_out(self, plan: PullPlan) -> Pull:
        pull = Pull(plan, self.hub(), self.cache, self.receipts)
        pull_all(pull, lambda _: None, 0.01)
        return pull

    def hub(self) -> Hub:
        return Hub(self.server.endpoint, self.pauses.append)

    def found(self, name: str) -> list[bytes]:
        """Return the bytes that a name leads to in the cache, [] for none."""
        wanted = parse_model(name)
        assert isinstance(wanted, HubName)
        return [file.link.read_bytes() for file in self.cache.find(wanted) or ()]

    def partials(self) -> list[Path]:
        return list(self.cache.partials())

    def links(self) -> list[str]:
        return [file.name for file in self.cache.all()]


def sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()
