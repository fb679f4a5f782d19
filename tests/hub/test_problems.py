"""Which errors of a request pass by themselves, and what is said of a connection that fails."""

import errno
import importlib

import pytest
from huggingface_hub import errors, get_session

from localspec.errors import NetworkError
from localspec.models.hub.problems import is_passing, offline_variables, translated

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


@pytest.mark.parametrize(
    ("error", "words", "hint"),
    [
        (http.ProxyError("407 Proxy Authentication Required"), "the proxy needs a login", "HTTPS_PROXY"),
        (http.ProxyError("403 Forbidden"), "the proxy does not let us through: 403 Forbidden", "NO_PROXY"),
        (http.ConnectError("[SSL] record layer failure"), "is not trusted: [SSL] record layer", "SSL_CERT_FILE"),
        (http.ConnectTimeout("timed out"), "https://…@hub.example does not answer", "HF_HUB_DOWNLOAD_TIMEOUT"),
        (http.ConnectError("[Errno -2] Name or service not known"), "offline: the hub cannot", "--offline"),
        (http.ReadError("[Errno 104] reset by http://me:word@p"), "reset by http://…@p", "--offline"),
        (http.ReadError("of hf_abcDEF1"), "of hf_…", "--offline"),
        (ConnectionResetError(), "cannot be reached: ConnectionResetError", "--offline"),
        (http.ConnectError("407 is no proxy's here"), "cannot be reached: 407 is", "--offline"),
        (http.ReadError("x" * 200), f"cannot be reached: {'x' * 200}|", "--offline"),
        (http.ReadError(f"a{'x' * 200}"), f"cannot be reached: a{'x' * 199}|", "--offline"),
        (errors.FileMetadataError("no tag"), "cannot be reached: no tag", "--offline"),
    ],
    ids=repr,
)
def test_a_connection_that_fails_says_why_without_secrets(error: Exception, words: str, hint: str) -> None:
    with pytest.raises(NetworkError) as caught, translated("a/b", "https://me:word@hub.example"):
        raise error
    assert words in f"{caught.value.message}|"
    assert hint in (caught.value.hint or "")
    assert "word" not in caught.value.message
    assert "abcDEF1" not in caught.value.message


def test_a_proxy_that_wants_a_login_has_its_status() -> None:
    with pytest.raises(NetworkError) as caught, translated("a/b", "https://hub.example"):
        raise http.ProxyError("407 Proxy Authentication Required")
    assert caught.value.detail == {"status": 407}


@pytest.mark.parametrize(
    ("hub", "transformers", "named"),
    [
        ("", "", "HF_HUB_OFFLINE"),
        ("1", "", "HF_HUB_OFFLINE"),
        ("", "true", "TRANSFORMERS_OFFLINE"),
        ("yes", "1", "HF_HUB_OFFLINE TRANSFORMERS_OFFLINE"),
        ("0", "1", "TRANSFORMERS_OFFLINE"),
    ],
)
def test_the_variable_that_forbids_the_network_is_named(
    monkeypatch: pytest.MonkeyPatch, hub: str, transformers: str, named: str
) -> None:
    for name, text in (("HF_HUB_OFFLINE", hub), ("TRANSFORMERS_OFFLINE", transformers)):
        monkeypatch.setenv(name, text) if text else monkeypatch.delenv(name, raising=False)
    assert offline_variables() == named


def test_an_error_of_the_disk_is_no_networks() -> None:
    with pytest.raises(IsADirectoryError), translated("a/b", "https://hub.example"):
        raise IsADirectoryError
