"""Probes of links: a small program at both sites measures the link from one to the other.

It runs in the sites' own shells (``koala.daemon.perform.probe_program``), and needs a python3 there. A failed probe
is reported with its reason, and does not count against a site.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
import shlex
from collections.abc import Iterable, Mapping
from importlib import resources

from koala.daemon.perform.interface import EngineInterface
from koala.files import FileArea
from koala.model.grid import Site
from koala.model.messages import LinkProbed, ProbeLink
from koala.model.request import SiteName

_log = logging.getLogger(__name__)

# A probe sends for at most the first time, and is given up after the second.
PROBE_STREAM_S = 2.0
PROBE_S = 45.0
_END = "KOALA_LINK_PROBE"
_REASON_CHARACTERS_MAX = 300


class ProbeFailedError(Exception):
    """Why a probe could not be made."""


class LinkProber:
    """Performs probes for the core and for other callers."""

    def __init__(
        self,
        engine: EngineInterface,
        sites: Iterable[Site],
        areas: Mapping[SiteName, FileArea],
        *,
        stream_s: float = PROBE_STREAM_S,
        probe_s: float = PROBE_S,
    ) -> None:
        self._engine = engine
        self._sites = {site.name: site for site in sites}
        self._areas = areas
        self._stream_s = stream_s
        self._probe_s = probe_s
        self._program = (
            resources.files("koala.daemon.perform").joinpath("probe_program.py").read_text(encoding="utf-8")
        )
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self, command: ProbeLink) -> None:
        """Begin; ends in ``LinkProbed``, unless it is stopped."""
        task = asyncio.create_task(self._perform(command), name=f"probe {command.source} to {command.target}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def stop(self) -> None:
        """Give up the probes under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _perform(self, command: ProbeLink) -> None:
        self._engine.report(await self.probe(command))

    async def probe(self, command: ProbeLink) -> LinkProbed:
        """Measure the link now. Returns the result, or the reason of a failure."""
        source, target = command.source, command.target
        try:
            async with asyncio.timeout(self._probe_s):
                latency_s, size_bytes, bytes_per_s = await self._measure(command)
        except TimeoutError:
            reason = f"the probe took longer than {self._probe_s:g} s (PROBE_S)"
        except (ProbeFailedError, OSError) as error:
            reason = str(error)
        except Exception as error:  # ours, and says nothing about the link
            _log.exception("the link from %s to %s could not be probed", source, target)
            reason = f"an error inside Koala: {error!r}"
        else:
            return LinkProbed(
                at=self._engine.now(),
                source=source,
                target=target,
                latency_s=latency_s,
                bytes_per_s=bytes_per_s,
                size_bytes=size_bytes,
            )
        reason = reason[:_REASON_CHARACTERS_MAX]
        return LinkProbed(at=self._engine.now(), source=source, target=target, reason=reason)

    async def _measure(self, command: ProbeLink) -> tuple[float, int, float]:
        """Return the latency, the bytes sent, and the bytes per second."""
        settings = self._sites[command.target].batch
        given = ("", "") if settings is None else (settings.host or "", settings.network or "")
        _, host, port = await self._run(command.target, "address", *given)
        secret = secrets.token_hex(8)
        limits = f"{self._stream_s:g}", f"{self._probe_s:g}"
        listening = asyncio.create_task(self._run(command.target, "listen", port, secret, *limits))
        try:
            latency = await self._run(command.source, "send", host, port, secret, str(command.size_bytes), *limits)
            received = await listening
        finally:
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)
        return float(latency[1]), int(received[1]), float(received[2])

    async def _run(self, site: SiteName, *words: str) -> list[str]:
        """Run the program at a site. Returns the words that it prints."""
        script = (
            "command -v python3 >/dev/null || { echo error python3 is missing there: install it, or write "
            f"probes: false; exit 0; }}\nexec python3 - {shlex.join(words)} <<'{_END}'\n{self._program}{_END}\n"
        )
        output = (await self._areas[site].host.run(script, timeout_s=self._probe_s)).strip()
        if output.startswith("error") or not output:
            raise ProbeFailedError(f"{site}: {output.removeprefix('error').strip() or 'it printed nothing'}")
        return output.split()
