# shellcheck shell=sh
# A process that moves bytes and outlives whoever started it. The working directory is the process's own; in it are:
#   process    the machine, the process and its start time; there from the start to the end, and after a kill
#   heartbeat  touched every second while it runs
#   exit_code  how it ended
#   output     what it said
#   stop       asks it to end

# A sign of life is this old at most.
KOALA_SILENT_MINUTES=1

# The name of this machine, in koala_host.
koala_find_host() {
  koala_host=
  if [ -r /proc/sys/kernel/hostname ]; then read -r koala_host </proc/sys/kernel/hostname || :; fi
  : "${koala_host:=$(uname -n)}"
}

# The start time of a process, in koala_born; of none for one that is gone. A process is the one that was started only
# if it also began at the same time, and a zombie is none.
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

# End the process, if there is one, with all that it started.
koala_stop() {
  [ -s process ] || return 0
  : >stop
  read -r host pid started <process
  tries=30
  koala_find_host
  if [ "$host" = "$koala_host" ]; then
    koala_find_born "$pid"
    # A group whose leader was killed has its number still, and nobody else can have that meanwhile.
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

# Be the process of the directory $1: run its file ``script``. When the directory is taken away, or somebody puts the
# file ``stop`` there, it ends with all that it started.
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

# Run a script ($1) unless one runs here already, and return once it has begun. $2 are the functions of this file.
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

# The size of a file ($1), if one is named; whether the process runs; the last $2 bytes of what it said.
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

# How large a file is, 0 where there is none.
koala_size_or_none() {
  if [ -e "$1" ]; then wc -c <"$1"; else echo 0; fi
}
