# shellcheck shell=sh
# A process that moves bytes and survives the process that started it. The working directory is its own; in it are:
#   process    the machine, the process and its start time; from the start to the end, and after a kill
#   heartbeat  touched every second while it runs
#   exit_code  how it ended
#   output     its output
#   stop       asks it to end

# The largest age of a sign of life.
KOALA_SILENT_MINUTES=1

# Put the name of this machine into koala_host.
koala_find_host() {
  koala_host=
  if [ -r /proc/sys/kernel/hostname ]; then read -r koala_host </proc/sys/kernel/hostname || :; fi
  : "${koala_host:=$(uname -n)}"
}

# Put the start time of a process into koala_born; empty for a process that is gone, or is a zombie. A process is the
# one that was started only if its start time is also the same.
koala_find_born() {
  koala_born=
  { read -r koala_stat <"/proc/$1/stat"; } 2>/dev/null || return 0
  set -f
  # shellcheck disable=SC2086  # the fields are to be split
  set -- ${koala_stat##*) }
  set +f
  case ${1-} in Z | X | '') return 0 ;; esac
  [ $# -ge 20 ] || return 0
  shift 19
  koala_born=$1
}

koala_lives() {
  [ -s process ] || return 1
  read -r host pid started <process
  koala_find_host
  if [ "$host" = "$koala_host" ]; then koala_find_born "$pid" && [ "$koala_born" = "$started" ]
  else [ -n "$(find heartbeat -mmin "-$KOALA_SILENT_MINUTES" 2>/dev/null)" ]; fi
}

koala_rest() {
  sleep 0.1 2>/dev/null || sleep 1
}

# End the process, if there is one, with all its children.
koala_stop() {
  [ -s process ] || return 0
  : >stop
  read -r host pid started <process
  tries=30
  koala_find_host
  if [ "$host" = "$koala_host" ]; then
    koala_find_born "$pid"
    # A group whose leader was killed still has its number, which nobody else can get meanwhile.
    if [ -z "$koala_born" ] || [ "$koala_born" = "$started" ]; then
      kill -TERM -- "-$pid" 2>/dev/null || :
      while koala_lives && [ $tries -gt 0 ]; do koala_rest; tries=$((tries - 1)); done
      kill -KILL -- "-$pid" 2>/dev/null || :
    fi
  else
    while ! [ -e exit_code ] && koala_lives && [ $tries -gt 0 ]; do koala_rest; tries=$((tries - 1)); done
  fi
  rm -f process stop
}

# Be the process of the directory $1: run its file ``script``. When the directory is removed, or somebody puts the file
# ``stop`` there, end it with all its children.
koala_run() {
  LC_ALL=C
  export LC_ALL
  home=$1
  cd "$home" || exit
  trap : TERM
  koala_find_host
  koala_find_born $$
  echo "$koala_host $$ $koala_born" >process.fresh || exit
  : >heartbeat || exit
  mv -f process.fresh process || exit
  (
    trap - TERM
    # shellcheck source=/dev/null
    . ./script
  ) </dev/null >output 2>&1 &
  work=$!
  (
    trap - TERM
    while sleep 1; do
      if [ -e stop ] || ! [ -e "$home/process" ]; then kill -TERM 0; fi
      : >heartbeat
    done
  ) </dev/null >/dev/null 2>&1 &
  wait $work
  echo $? >exit_code.fresh && mv -f exit_code.fresh exit_code
  kill -TERM 0
}

# Run a script ($1) unless one runs here already, and return once it has begun. $2 contains the functions of this file.
koala_start() {
  if koala_lives && ! [ -e exit_code ]; then return 0; fi
  command -v setsid >/dev/null || { echo 'setsid is missing; install util-linux' >&2; exit 1; }
  rm -f process exit_code stop output
  printf '%s\n' "$1" >script
  printf '%s\n' "$2" >functions
  # shellcheck disable=SC2016  # for the new shell to expand
  setsid sh -c '. ./functions; koala_run "$1"' sh "$(pwd)" </dev/null >/dev/null 2>&1 &
  tries=100
  while ! [ -e process ] && [ $tries -gt 0 ]; do koala_rest; tries=$((tries - 1)); done
  [ -e process ] || { echo 'the process did not begin' >&2; exit 1; }
}

# Print the size of a file ($1), if one is named; whether the process runs; the last $2 bytes of its output.
koala_look() {
  koala_size_or_none "$1"
  if [ -s exit_code ]; then
    code=
    read -r code <exit_code || :
    echo "ended $code"
  elif koala_lives; then echo lives
  else echo gone; fi
  tail -c "$2" output 2>/dev/null || :
}

# Print the size of a file, 0 if there is none.
koala_size_or_none() {
  if [ -e "$1" ]; then wc -c <"$1"; else echo 0; fi
}
