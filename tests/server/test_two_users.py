"""An edge and its verifier as two users in two network namespaces, which a cable of the kernel joins, with TLS.

Making them takes root. Where only root may read the interpreter, both users keep the one right to read any file.
"""

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.harness import ROOT, TIMEOUT, assert_one_line, environment, localspec
from tests.integration.pair import DRAFT
from tests.models.hollow import Hollow, write
from tests.server.certificates import self_made

needs_root = pytest.mark.skipif(
    sys.platform != "linux" or os.geteuid() != 0 or not all(map(shutil.which, ("ip", "setpriv", "openssl"))),
    reason="needs Linux, root, ip, setpriv and openssl",
)
pytestmark = [needs_root, pytest.mark.slow]
HERE, THERE, ELSEWHERE = "10.77.0.1", "10.77.0.2", "10.77.0.3"  # the certificate is for THERE, and not for ELSEWHERE
PORT = 8443
READS_ALL = ("--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search")
SAME = ("--kv", "f32", "--flash-attn", "off", "-t", "1")  # rows of several passes are those of one
ASKED = ("--method", "draft-model", "-k", "4", "--verify", "coupled", "--seed", "11", "-n", "24", "--no-save", "--json")
PROMPT = ("--raw", "Once upon a time there was a king, and the king")
LATER = "import localspec.remote.messages as m; m.VERSION += 1; from localspec.cli import main; main()"


@dataclass(frozen=True)
class User:
    """One side: its namespace, its number, and its home."""

    namespace: str
    number: int
    home: Path

    def command(self, *words: str) -> list[str]:
        ids = ("--reuid", str(self.number), "--regid", str(self.number), "--clear-groups")
        return ["ip", "netns", "exec", self.namespace, "setpriv", *ids, *_rights(self.number), *words]

    @property
    def environment(self) -> dict[str, str]:
        return environment({"LOCALSPEC_HOME": str(self.home), "HOME": str(self.home)})

    def runs(self, *words: str, code: tuple[str, ...] = ("-m", "localspec")) -> subprocess.CompletedProcess[bytes]:
        command = self.command(sys.executable, *code, *words)
        return subprocess.run(
            command, capture_output=True, timeout=TIMEOUT, env=self.environment, cwd=ROOT, stdin=subprocess.DEVNULL
        )


@dataclass(frozen=True)
class Two:
    """The edge, the verifier's process, and the files that the edge was given."""

    edge: User
    verifier: subprocess.Popen[bytes]
    certificate: Path
    key_file: Path

    def asks(self, *words: str, host: str = THERE, **how: Any) -> subprocess.CompletedProcess[bytes]:
        """Run one answer on the edge; later words go before these."""
        safe = ("--verifier-ca", str(self.certificate), "--verifier-key-file", str(self.key_file))
        draft = () if "-m" in words else ("-m", str(DRAFT))
        verifier = ("--verifier", f"wss://{host}:{PORT}")
        return self.edge.runs("run", *verifier, *safe, "-t", "1", *draft, *ASKED, *words, *PROMPT, **how)


def _rights(number: int) -> tuple[str, ...]:
    """Return what lets a user run this interpreter: nothing, where everybody may."""
    bare = ["setpriv", "--reuid", str(number), "--regid", str(number), "--clear-groups"]
    again = "import subprocess, sys; subprocess.run([sys.executable, '-c', 'import localspec'], check=True)"
    alone = subprocess.run([*bare, sys.executable, "-c", again], cwd=ROOT, capture_output=True)
    return () if alone.returncode == 0 else READS_ALL


def _ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[tuple[str, str]]:
    """Two namespaces with a cable between them, and nothing else."""
    names = (f"edge{os.getpid()}", f"tower{os.getpid()}")
    try:
        try:
            for name in names:
                _ip("netns", "add", name)
            _ip("link", "add", "cable", "netns", names[0], "type", "veth", "peer", "name", "cable", "netns", names[1])
        except subprocess.CalledProcessError as error:
            pytest.skip(f"no namespaces here: {error.stderr.decode().strip()}")
        for name, addresses in zip(names, ((HERE,), (THERE, ELSEWHERE)), strict=True):
            for address in addresses:
                _ip("-n", name, "address", "add", f"{address}/24", "dev", "cable")
            _ip("-n", name, "link", "set", "cable", "up")
        yield names
    finally:
        for name in names:
            subprocess.run(["ip", "netns", "delete", name], capture_output=True)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """A folder that every user may enter; pytest's own are for one."""
    with tempfile.TemporaryDirectory(prefix="localspec-two-") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def two(namespaces: tuple[str, str], folder: Path) -> Iterator[Two]:
    """A verifier that serves, and an edge that knows its key and its certificate."""
    edge, tower = (User(name, 64001 + i, folder / name) for i, name in enumerate(namespaces))
    for user in (edge, tower):
        user.home.mkdir(mode=0o700)
    made = self_made(tower.home, f"IP:{THERE}")
    key = tower.home / "api-key"
    key.write_text("secret\n")
    given = [Path(shutil.copy(file, edge.home)) for file in (made[0], key)]
    for user in (edge, tower):
        for path in (user.home, *user.home.iterdir()):
            os.chown(path, user.number, user.number)
    tls = ("--ssl-certfile", str(made[0]), "--ssl-keyfile", str(made[1]), "--api-key-file", str(key))
    serves = ("-m", "localspec", "serve", "storyteller", "--host", "0.0.0.0", "--port", str(PORT), "--json")
    process = subprocess.Popen(
        tower.command(sys.executable, *serves, *tls, *SAME),
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=tower.environment, cwd=ROOT, start_new_session=True,
    )  # fmt: skip
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        assert b'"url": "https://' in line, process.communicate()[1].decode()
        yield Two(edge, process, *given)
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
        process.communicate()


def test_the_text_is_that_of_one_machine(two: Two) -> None:
    """Of another user in another namespace, who reaches the verifier by its cable alone."""
    done = two.asks()
    assert done.returncode == 0, done.stderr.decode()
    assert done.stderr == b""
    found = json.loads(done.stdout)
    assert found["edge"]["rounds"] > 3
    alone = localspec("run", "-m", "storyteller", *SAME, *ASKED, *PROMPT)
    assert found["text"] == json.loads(alone.stdout)["text"]
    status = Path(f"/proc/{two.verifier.pid}/status").read_text()
    (uids,) = [line.split()[1:] for line in status.splitlines() if line.startswith("Uid:")]
    assert set(uids) == {"64002"}
    assert os.readlink(f"/proc/{two.verifier.pid}/ns/net") != os.readlink("/proc/self/ns/net")


def test_a_wrong_key(two: Two) -> None:
    wrong = two.edge.home / "wrong-key"
    wrong.write_text("guessed\n")
    wrong.chmod(0o644)
    assert_one_line(two.asks("--verifier-key-file", str(wrong)), 4, "does not take this key")


def test_a_wrong_certificate(two: Two, tmp_path: Path) -> None:
    """Another one for the same address, and the right one for another address."""
    other = shutil.copy(self_made(tmp_path, f"IP:{THERE}")[0], two.edge.home / "other.pem")
    os.chown(other, two.edge.number, two.edge.number)
    assert_one_line(two.asks("--verifier-ca", str(other)), 4, "certificate", "--verifier-ca FILE")
    assert_one_line(two.asks(host=ELSEWHERE), 4, "certificate", ELSEWHERE)


def test_another_vocabulary(two: Two) -> None:
    """A draft that shares bytes alone with the target."""
    draft = write(two.edge.home / "foreign.gguf", Hollow(1, 64, 1, 1, 64, 1024, "F16", word="z"))
    os.chown(draft, two.edge.number, two.edge.number)
    told = f"foreign.gguf does not fit the target at {THERE}:{PORT}: they share 256 of the target's"
    assert_one_line(two.asks("-m", str(draft)), 6, told)


def test_another_version(two: Two) -> None:
    assert_one_line(two.asks(code=("-c", LATER)), 6, "version 1 of the protocol", "this localspec 2")
