"""The limits of the API by name, and the buckets that limit a caller's rate."""

from __future__ import annotations

import ipaddress
from collections.abc import Callable

from koala.model.errors import ClientError, TooManyError

# One request. A stranger needs a body only to sign in.
BODY_BYTES_MAX = 4_194_304
STRANGER_BODY_BYTES_MAX = 16_384
BODY_DRAINED_BYTES_MAX = 16_777_216
BODY_S_MAX = 30.0
JSON_DEPTH_MAX = 32
# A call has only a few values; anything large is one of its strings.
JSON_STRINGS_MAX = 1_000
JSON_STRUCTURE_CHARACTERS_MAX = 65_536
URL_BYTES_MAX = 16_384
HEADER_BYTES_MAX = 32_768
HEADER_S_MAX = 20.0
KEEP_ALIVE_S = 30
HANDSHAKE_S_MAX = 10.0

# Many requests. The daemon's own user is trusted to overload nobody but itself.
CONNECTIONS_MAX = 1_024
OWNER_CONNECTIONS_MAX = 256
STRANGERS_PER_ADDRESS_MAX = 64
CONNECTIONS_PER_USER_MAX = 64
BODIES_PER_CALLER_MAX = 16
REQUESTS_PER_S = 50.0
REQUESTS_BURST = 200.0
OWNER_REQUESTS_PER_S = 2_000.0
OWNER_REQUESTS_BURST = 10_000.0
FAILED_SIGN_INS_PER_S = 0.5
FAILED_SIGN_INS_BURST = 20.0
SIGN_INS_PER_S = 0.5
SIGN_INS_BURST = 60.0
KEYS_MAX = 10_000
# The holder of one IPv6 address has a whole network.
IPV6_PREFIX_BITS = 64

# The stream of events.
STREAMS_MAX = 256
STREAMS_PER_PRINCIPAL_MAX = 32
HEARTBEAT_S = 15.0
STREAM_SEND_S_MAX = 30.0


class RateError(TooManyError):
    """More calls than the rate allows; ``retry_after_s`` is the wait until the next one is accepted."""

    def __init__(self, message: str, retry_after_s: float) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class TooSlowError(ClientError):
    """The request did not come in time."""

    default_code = "too_slow"
    http_status = 408


def network_of(address: str) -> str:
    """Return the key to count an address by: the address, or for IPv6 the network of one site."""
    try:
        read = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(read, ipaddress.IPv4Address):
        return address
    if read.ipv4_mapped is not None:
        return str(read.ipv4_mapped)
    return str(ipaddress.IPv6Network((int(read), IPV6_PREFIX_BITS), strict=False))


class Buckets:
    """For every key a bucket of ``burst`` permits that fills again by ``per_s`` each second. At most ``keys_max``
    buckets are kept; beyond that the least recently used one is forgotten, which makes it full."""

    def __init__(self, per_s: float, burst: float, clock: Callable[[], float], *, keys_max: int = KEYS_MAX) -> None:
        self._per_s = per_s
        self._burst = burst
        self._clock = clock
        self._keys_max = keys_max
        self._levels: dict[str, tuple[float, float]] = {}  # key -> permits left, and the time of that count

    def take(self, key: str) -> float:
        """Take one permit. Returns 0 if there was one, otherwise the seconds until the next."""
        now = self._clock()
        left, at = self._levels.pop(key, (self._burst, now))
        left = min(self._burst, left + (now - at) * self._per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / self._per_s
        self._levels[key] = (left - 1 if wait_s == 0 else left, now)
        if len(self._levels) > self._keys_max:
            self._levels.pop(next(iter(self._levels)))
        return wait_s
