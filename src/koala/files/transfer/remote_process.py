"""A process at a place that moves bytes, and outlives both the connection by which it was started and this process.

All that is known of it is in files of one directory there: who carries, how it ended, what it said. So whoever comes
later, from whichever machine that sees the directory, finds it, and can stop it. What it runs is not known here.
"""

from __future__ import annotations

import shlex

import msgspec

from koala.files.hosts import Place, path_word

# Who carries: a line of machine, process and start time. There from the start to the end, and after a kill.
CARRIER = "carrier"
# How long a carrier that runs on another machine of the site may give no sign of life: it gives one every second.
SILENT_MINUTES = 1
# How much of what it said is read.
SAID_BYTES_MAX = 2_000
_END = "KOALA_END_OF_SCRIPT"

# The functions that the texts below have in common; the working directory is the carriage's.
# A process is the one that was started only if it also began at the same time, and a zombie is none.
_KNOWING = """\
koala_born() { sed -n 's/.*) //p' "/proc/$1/stat" 2>/dev/null | cut -d' ' -f1,20 | { read -r state born || :
  case $state in Z | X | '') ;; *) echo "$born" ;; esac; } }
koala_lives() { [ -s carrier ] || return 1
  read -r host pid started <carrier
  if [ "$host" = "$(uname -n)" ]; then [ "$(koala_born "$pid")" = "$started" ]
  else [ -n "$(find beat -mmin -MINUTES 2>/dev/null)" ]; fi; }
koala_rest() { sleep 0.1 2>/dev/null || sleep 1; }
""".replace("MINUTES", str(SILENT_MINUTES))

# How a text ends the carriage of its working directory, if there is one.
STOP = f"""{_KNOWING}\
koala_stop() {{ [ -s carrier ] || return 0
  : >stop
  read -r host pid started <carrier
  tries=30
  if [ "$host" = "$(uname -n)" ]; then
    born=$(koala_born "$pid")
    # A group whose leader was killed has its number still, and nobody else can have that meanwhile.
    if [ -z "$born" ] || [ "$born" = "$started" ]; then
      kill -TERM -- "-$pid" 2>/dev/null || :
      while koala_lives && [ $tries -gt 0 ]; do koala_rest; tries=$((tries - 1)); done
      kill -KILL -- "-$pid" 2>/dev/null || :
    fi
  else
    while ! [ -e ended ] && koala_lives && [ $tries -gt 0 ]; do koala_rest; tries=$((tries - 1)); done
  fi
  rm -f carrier stop; }}
"""

# A carrier whose directory is taken away, or in which somebody puts the file ``stop``, ends with all that it started.
_SCRIPT = """\
LC_ALL=C; export LC_ALL
home=$1
cd "$home" || exit
{knowing}
trap : TERM
echo "$(uname -n) $$ $(koala_born $$)" >carrier.fresh && : >beat && mv -f carrier.fresh carrier || exit
( trap - TERM
{text}
) </dev/null >said 2>&1 &
work=$!
( trap - TERM
while sleep 1; do
  if [ -e stop ] || ! [ -e "$home/carrier" ]; then kill -TERM 0; fi
  : >beat
done ) </dev/null >/dev/null 2>&1 &
wait $work
echo $? >ended.fresh && mv -f ended.fresh ended
kill -TERM 0
"""


class Look(msgspec.Struct, frozen=True, kw_only=True):
    """A carriage at one moment. ``code`` is None while it runs, and when it was killed; ``size_bytes`` is that of the
    file that was asked about, 0 where there is none."""

    running: bool
    code: int | None
    size_bytes: int
    said: str


class Carriage:
    """What is carried in one directory ``home`` of a place, an absolute path or one from '~/' on."""

    def __init__(self, place: Place, home: str) -> None:
        self._place = place
        self._enter = f"cd {path_word(home)}"

    async def start(self, text: str) -> None:
        """Run a text, unless one runs here already, and return once it has begun.

        Raises ``OSError`` when it cannot be started; then it may still start a little later.
        """
        script = _SCRIPT.format(knowing=_KNOWING, text=text)
        assert _END not in script
        await self._place.do(
            f"{self._enter}\n{_KNOWING}"
            "if koala_lives && ! [ -e ended ]; then exit 0; fi\n"
            "command -v setsid >/dev/null || { echo 'setsid is missing; install util-linux' >&2; exit 1; }\n"
            "rm -f carrier ended stop said\n"
            f"cat >carry <<'{_END}'\n{script}{_END}\n"
            'setsid sh ./carry "$(pwd)" </dev/null >/dev/null 2>&1 &\n'
            "tries=100; while ! [ -e carrier ] && [ $tries -gt 0 ]; do koala_rest; tries=$((tries - 1)); done\n"
            "[ -e carrier ] || { echo 'the process did not begin' >&2; exit 1; }\n"
        )

    async def look(self, watched: str | None = None) -> Look:
        """How it is, and how large a file of its place is."""
        size = "echo 0\n" if watched is None else f"{size_text(watched)}\n"
        answer = await self._place.do(
            f"{self._enter}\n{_KNOWING}{size}"
            'if [ -s ended ]; then echo "ended $(cat ended)"; elif koala_lives; then echo lives; else echo gone; fi\n'
            f"tail -c {SAID_BYTES_MAX} said 2>/dev/null || :\n"
        )
        size_bytes, state, said = answer.split("\n", 2)
        word, _, code = state.partition(" ")
        return Look(
            running=word == "lives",
            code=int(code) if code.isdigit() else None,
            size_bytes=int(size_bytes),
            said=said.strip(),
        )

    async def stop(self) -> None:
        """End it, with all that it started. When this returns nothing of it runs; of none it says nothing."""
        await self._place.do(f"{self._enter} 2>/dev/null || exit 0\n{STOP}koala_stop\n")


def size_text(path: str) -> str:
    """A command that prints how large a file is, 0 where there is none."""
    return f"if [ -e {shlex.quote(path)} ]; then wc -c <{shlex.quote(path)}; else echo 0; fi"
