"""Which errors of a request pass by themselves."""

from __future__ import annotations

import errno
import importlib

import pytest
from huggingface_hub import get_session

from localspec.models.hub.problems import is_passing

http = importlib.import_module(type(get_session()).__module__.partition(".")[0])


@pytest.mark.parametrize(
    ("error", "expected"),
    [
        (http.ConnectError("no route"), True),
        (http.ReadTimeout("no answer"), True),
        (ConnectionResetError(errno.ECONNRESET, "reset"), True),
        (http.ConnectError("certificate verify failed"), False),
        (http.UnsupportedProtocol("no scheme"), False),
        (OSError(errno.ENOSPC, "the disk is full"), False),
    ],
    ids=repr,
)
def test_a_lost_connection_passes_and_a_full_disk_does_not(error: Exception, expected: bool) -> None:
    assert is_passing(error) is expected
