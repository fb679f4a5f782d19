"""What goes wrong between here and the hub, as errors of ours: each says what to do next."""

import json
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import ModuleType

from localspec.errors import LocalspecError, NetworkError, NotFoundError, UsageError
from localspec.sanitize import shown

OFFLINE = "offline"  # the reason in an error's detail
LOGIN = "the proxy needs a login", "set HTTPS_PROXY with user and password"
_TOKEN = re.compile(r"hf_[A-Za-z0-9]+")
_PASSWORD = re.compile(r"(?<=//)[^/@\s]+(?=@)")
_ERRNO = re.compile(r"\[Errno -?\d+\] ")
_NO_WAY = re.compile(
    "name or service not known|name resolution|getaddrinfo failed|nodename nor servname|no address associated|"
    "network is unreachable|no route to host",
    re.IGNORECASE,
)
_FOREIGN = ("httpx", "httpx2", "httpcore", "httpcore2", "huggingface_hub", "hf_xet", "anyio", "h11")


@contextmanager
def translated(repo: str, endpoint: str) -> Iterator[None]:
    """Raise what the hub's library raises as a NetworkError; errors of the disk and our own pass."""
    try:
        yield
    except LocalspecError:
        raise
    except Exception as error:
        mapped = _mapped(error, repo, _PASSWORD.sub("…", endpoint))
        if mapped is None:
            raise
        raise mapped from error


def is_passing(error: BaseException) -> bool:
    status = _status(error)
    if status is not None:
        return status in (408, 429) or status >= 500
    if _is_distrust(str(error)):
        return False
    return _is_http(error) and type(error).__name__ not in ("ProxyError", "UnsupportedProtocol", "LocalProtocolError")


def wait_wanted(error: BaseException) -> float:
    from huggingface_hub.utils import parse_ratelimit_headers

    seconds, headers = 0.0, getattr(getattr(error, "response", None), "headers", {})
    with suppress(ValueError):
        seconds = max(0.0, float(headers.get("Retry-After", 0)))
    with suppress(ValueError, OverflowError):  # of a number with hundreds of digits
        limit = parse_ratelimit_headers(headers) if _status(error) == 429 else None  # the hub's own way to say it
        if limit is not None and not limit.remaining:
            seconds = max(seconds, float(limit.reset_in_seconds))
    return seconds


def _mapped(error: Exception, repo: str, endpoint: str) -> LocalspecError | None:
    from huggingface_hub import errors as hub

    page = f"{endpoint}/{repo}"
    if isinstance(error, hub.OfflineModeIsEnabled):
        which = offline_variables()
        return NotFoundError(f"{repo} is not on this machine, and {which} is set", hint=f"unset {which}")
    if isinstance(error, hub.GatedRepoError):
        return NetworkError(
            f"{repo} is gated: its owner requires you to accept terms first",
            hint=f"open {page}, agree, and set HF_TOKEN to a token of that account",
            detail={"page": page, "reason": "gated"},
        )
    if isinstance(error, hub.RevisionNotFoundError):
        return NetworkError(f"{repo} has no such branch, tag or commit", hint=f"see {page}/commits/main")
    if isinstance(error, hub.RemoteEntryNotFoundError):
        return NetworkError(f"a file of {repo} is no longer there", hint=f"see {page}/tree/main")
    if isinstance(error, hub.RepositoryNotFoundError):
        message = f"the hub has no repository {repo}, or it is private"
        return NetworkError(message, hint=f"see {page}; for a private one set HF_TOKEN")
    status = _status(error)
    if status is not None:
        return _of_status(status, error, repo, page)
    if _is_http(error) or type(error).__module__.partition(".")[0] in _FOREIGN:
        return _of_connection(error, endpoint)
    if isinstance(error, json.JSONDecodeError | KeyError | TypeError | ValueError | AttributeError):
        message = f"{endpoint} does not answer as the hub does ({_said(error)})"
        return NetworkError(message, hint="check HF_ENDPOINT and whether this network needs a login in a browser first")
    return None


def _of_status(status: int, error: Exception, repo: str, page: str) -> NetworkError:
    when = f" for {wait_wanted(error):.0f} s" if wait_wanted(error) else ""
    known = {
        401: ("the hub does not accept the token", "set HF_TOKEN again, or unset it"),
        403: (f"the hub refuses access to {repo}", f"see {page}, and check HF_TOKEN"),
        404: (f"the hub does not find {repo}", f"see {page}"),
        407: LOGIN,
        429: (f"the hub asks for fewer requests{when}", "wait, or set HF_TOKEN: it allows more"),
    }
    other = f"the hub refuses the request for {repo} (status {status})", f"see {page}"
    if status >= 500:
        other = f"the hub fails (status {status})", "try again later; the downloaded part is kept"
    message, hint = known.get(status, other)
    return NetworkError(message, hint=hint, detail={"status": status})


def _of_connection(error: Exception, endpoint: str) -> NetworkError:
    said, name = _said(error), type(error).__name__
    if "Proxy" in name and said.startswith("407"):
        return NetworkError(LOGIN[0], hint=LOGIN[1], detail={"status": 407})
    if "Proxy" in name:
        return NetworkError(f"the proxy does not let us through: {said}", hint="check HTTPS_PROXY and NO_PROXY")
    if _is_distrust(said):
        message = f"the connection to {endpoint} is not trusted: {said}"
        return NetworkError(message, hint="check the clock, and SSL_CERT_FILE")
    if "Timeout" in name:
        return NetworkError(f"{endpoint} does not answer", hint="try again; HF_HUB_DOWNLOAD_TIMEOUT=60 waits longer")
    if _NO_WAY.search(said):
        return offline(endpoint)
    message = f"{endpoint} cannot be reached: {said}"
    return NetworkError(message, hint="check the connection; --offline uses what is on this machine")


def offline(endpoint: str) -> NetworkError:
    return NetworkError(
        f"offline: the hub cannot be reached at {_PASSWORD.sub('…', endpoint)}",
        hint="check the connection, or HF_ENDPOINT; --offline uses what is on this machine",
        detail={"reason": OFFLINE},
    )


def _is_distrust(said: str) -> bool:
    return "CERTIFICATE" in said.upper() or "SSL" in said.upper()


def _status(error: BaseException) -> int | None:
    status = getattr(getattr(error, "response", None), "status_code", None)
    return status if isinstance(status, int) and status >= 400 else None


def _is_http(error: BaseException) -> bool:
    from huggingface_hub.errors import HfHubHTTPError

    # The library's HTTP client changed its name between versions; its base class is what ours is derived from.
    return isinstance(error, (HfHubHTTPError.__bases__[0], ConnectionError, TimeoutError))


def _said(error: Exception) -> str:
    """Return an error's own words as one short line without a token or a password in it."""
    words = " ".join(str(error).split()) or type(error).__name__
    return shown(_ERRNO.sub("", _PASSWORD.sub("…", _TOKEN.sub("hf_…", words)))[:200], limit=200)


def hub_settings() -> ModuleType:
    try:
        from huggingface_hub import constants
    except ValueError as error:
        raise UsageError(
            f"an HF_ variable of the environment has no valid value: {shown(str(error))}",
            hint="check HF_ENDPOINT and HF_HUB_DOWNLOAD_TIMEOUT (env | grep HF_), or unset them",
        ) from error
    return constants


def offline_variables() -> str:
    names = ("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")
    is_true = hub_settings().ENV_VARS_TRUE_VALUES
    return " ".join(name for name in names if os.environ.get(name, "").upper() in is_true) or names[0]
