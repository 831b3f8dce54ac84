# shellcheck shell=sh
# The steps in a file area at its site; the working directory is the area's. koala.files.area.layout defines the names
# of its directories. Needs the functions of koala/files/process.sh.

# Print the SHA-256 of the standard input, in 64 digits. openssl is several times as fast as the others where the
# processor supports it; an old openssl does not know the option.
koala_digest() {
  if openssl dgst -sha256 -r </dev/null >/dev/null 2>&1; then openssl dgst -sha256 -r
  elif command -v sha256sum >/dev/null; then sha256sum
  else shasum -a 256; fi | cut -c1-64
}

# Print the SHA-256 of a file ($1). Each program reads it from its beginning, so openssl need not be tested before.
# Print an empty line if there is no program.
koala_digest_of() {
  if koala_sum=$(openssl dgst -sha256 -r <"$1" 2>/dev/null); then :
  elif command -v sha256sum >/dev/null; then koala_sum=$(sha256sum <"$1")
  else koala_sum=$(shasum -a 256 <"$1") || koala_sum=; fi
  printf '%.64s\n' "$koala_sum"
}

# Give a finished file ($1) its name ($2), after its bytes are on disk.
koala_appear() {
  chmod 444 "$1"
  sync "$1" >/dev/null 2>&1 || sync
  mv -f "$1" "$2"
}

# Print size, inode and time of change of a file.
koala_stamp_file() {
  stat -L -c '%s %i.%y' "$1" 2>/dev/null || stat -L -f '%z %i.%m' "$1"
}

# Do the same for a path that may be missing, or not be a regular file.
koala_stamp() {
  if [ -f "$1" ]; then koala_stamp_file "$1"
  elif [ -e "$1" ]; then echo other; fi
}

# Make the directories, remove what a kill has left, and list copies with their holders.
koala_prepare() {
  mkdir -p replicas copies trash doubts
  rm -f replicas/.[!.]*
  for home in copies/*; do
    [ -d "$home" ] || continue
    set -- "$home"/holders/*
    # A copy without holders loses its place, which ends a process that still writes it.
    if ! [ -e "$1" ]; then
      mv "$home" "trash/${home##*/}.$$"
      continue
    fi
    for holder; do echo "${home##*/} ${holder##*/}"; done
  done
  rm -rf trash/*
}

koala_size() {
  [ -f "$1" ] || return 0
  wc -c <"$1"
}

# Print $3 bytes of a file from byte $2 on.
koala_read() {
  if [ "$2" -eq 0 ]; then cat "$1"; else tail -c "+$(($2 + 1))" "$1"; fi | head -c "$3"
}

# Print whole files, given by path and size, each after a line that says that it is here and has this size. The line is
# empty for any other file.
koala_read_whole() {
  while [ $# -gt 0 ]; do
    if [ -f "$1" ] && [ -r "$1" ] && [ "$(wc -c <"$1")" -eq "$2" ]; then
      echo here
      cat "$1"
    else echo; fi
    shift 2
  done
}

# Copy a file ($1) to a fresh name ($2) and then to its own ($3).
koala_take_in() {
  if ! [ -e "$1" ]; then echo absent; return 0; fi
  if ! [ -f "$1" ]; then echo other; return 0; fi
  if ! [ -r "$1" ]; then echo closed; return 0; fi
  fresh=$2
  trap 'rm -f "$fresh"' EXIT
  cat "$1" >"$2"
  koala_stamp_file "$2"
  koala_digest_of "$2"
  koala_appear "$2" "$3"
}

# Print the size of the files below a directory in units of 1,024 bytes, holes included where du can tell.
koala_extent() {
  size=$(du -sk --apparent-size "$1" 2>/dev/null | cut -f1)
  [ -n "$size" ] || size=$(du -skA "$1" 2>/dev/null | cut -f1)
  [ -n "$size" ] || size=$(du -sk "$1" | cut -f1)
  echo "$size"
}

# Print how many bytes of holes the files below $1 have more than data; 0 where that is unknown. Allocated space is not
# a hole, and a compressed file may have less space than data.
koala_holes() {
  # shellcheck disable=SC2016  # for perl to read
  find "$1" -type f -exec perl -e '
    for (@ARGV) {
      my ($size, $blocks) = (lstat)[7, 12];
      my $data = 512 * $blocks;
      if (2 * $data < $size and $^O eq "linux" and open(my $file, "<", $_)) {
        my ($begin, $end) = (0, 0);
        $data = 0;
        while ($end < $size and defined($begin = sysseek($file, $end, 3))) {  # SEEK_DATA
          $end = sysseek($file, $begin, 4);  # SEEK_HOLE
          $data += $end - $begin;
        }
      }
      $surplus += $size - 2 * $data;
    }
    printf "%.0f\n", $surplus' {} + 2>/dev/null | awk '{ sum += $1 } END { printf "%.0f\n", sum }'
}

# Report why something could not be written, by the program's message: for lack of space, or for another reason, which
# is passed on.
koala_no_room() {
  case $problem in
  *'No space left'* | *'quota exceeded'* | *'File too large'* | *'Wrote only'*) echo full ;;
  *)
    echo "$problem" >&2
    return 1
    ;;
  esac
}

# Run a command ($3...) that may take long, from a file ($1) to another ($2), while the file $fresh is there: a caller
# that gives up removes that file. The command's complaint is in $problem.
koala_while_wanted() {
  input=$1 output=$2
  shift 2
  "$@" <"$input" >"$output" 2>"$fresh.said" &
  work=$!
  (
    while [ -e "$fresh" ]; do sleep 1; done
    kill "$work"
  ) </dev/null >/dev/null 2>&1 &
  watch=$!
  code=0
  wait "$work" || code=$?
  kill "$watch" 2>/dev/null || :
  problem=$(cat "$fresh.said" 2>/dev/null) || :
  return $code
}

# Put the SHA-256 of the file $fresh into $koala_sum.
koala_digest_fresh() {
  for program in 'openssl dgst -sha256 -r' sha256sum 'shasum -a 256'; do
    command -v "${program%% *}" >/dev/null || continue
    # shellcheck disable=SC2086  # words of a command
    if koala_while_wanted "$fresh" "$fresh.sum" $program; then
      koala_sum=$(cut -c1-64 "$fresh.sum")
      return
    fi
    [ -e "$fresh" ] || return 1
  done
  echo "$problem" >&2
  return 1
}

# Make the replica $4, by way of a fresh name ($3), from the path $2 in the workspace $1: a file, or a directory as one
# archive. The limits are $5 bytes, $6 entries, $8 bytes of holes more than data, and at present $7 bytes. Print the
# result, or why there is none.
koala_collect() {
  if [ -L "$1" ] || [ -L "${1%/*}" ] || ! [ -d "$1" ]; then echo gone; return 0; fi
  root=$(cd "$1" && pwd -P)
  if ! [ -e "$1/$2" ]; then echo absent; return 0; fi
  found=$(readlink -f "$1/$2")
  case $found in "$root"/*) ;; *) echo outside; return 0 ;; esac
  if ! [ -r "$found" ]; then echo closed; return 0; fi
  fresh=$3
  trap 'rm -f "$fresh" "$fresh.said" "$fresh.sum"' EXIT
  rm -f "${3%@*}@"* # an earlier attempt that still runs fails without its fresh file
  if [ -f "$found" ]; then
    size=$(koala_stamp_file "$found")
    size=${size%% *}
    if [ "$size" -gt "$5" ]; then echo large; return 0; fi
    if [ "$size" -gt "$7" ]; then echo later; return 0; fi
    if [ "$(koala_holes "$found")" -gt "$8" ]; then echo holes; return 0; fi
    if ! ln "$found" "$3" 2>/dev/null && ! { : >"$3" && koala_while_wanted "$found" "$3" cat; }; then
      koala_no_room
      return
    fi
    what='file'
  elif [ -d "$found" ]; then
    if [ "$(find "$found" | head -n "$(($6 + 2))" | wc -l)" -gt "$(($6 + 1))" ]; then echo many; return 0; fi
    size=$(koala_extent "$found")
    if [ "$size" -gt "$(($5 / 1024))" ]; then echo large; return 0; fi
    if [ "$size" -gt "$(($7 / 1024))" ]; then echo later; return 0; fi
    if [ "$(koala_holes "$found")" -gt "$8" ]; then echo holes; return 0; fi
    # Sockets are left out: tar reports them and goes on.
    if ! { : >"$3" && koala_while_wanted /dev/null "$3" tar -cf - -C "$found" .; }; then
      koala_no_room
      return
    fi
    what='directory'
  else
    echo other
    return 0
  fi
  [ -e "$3" ] || return 1
  koala_digest_fresh || return
  rm -f "$4" # nobody reads it before it is reported, and mv refuses a link to the same file
  koala_appear "$3" "$4"
  echo "$what"
  koala_stamp_file "$4"
  echo "$koala_sum"
  if [ -d "$found" ]; then koala_last_change "$found"; fi
}

# Print when the last of the files below a directory was changed, in seconds; nothing if there are no files.
koala_last_change() {
  find "$1" -type f -exec sh -c 'stat -c %Y "$@" 2>/dev/null || stat -f %m "$@"' stat {} + | sort -n | tail -n 1
}

# Make the finished copy in the directory $1 a replica, by way of a fresh name ($2), under its own ($3).
koala_promote() {
  rm -f "$2"
  linked=yes
  ln "$1/data" "$2" 2>/dev/null || { linked=; cp "$1/data" "$2"; }
  koala_appear "$2" "$3"
  # Only the file of the copy itself was verified when it arrived.
  if [ -n "$linked" ] && [ -s "$1/checksum" ]; then
    koala_stamp_file "$3"
    cat "$1/checksum"
  fi
}

# Write a mark ($1) with the text $2, whose bytes are all octal escapes, because it may be any text.
koala_doubt() {
  mkdir -p doubts
  # shellcheck disable=SC2059  # the escapes are for printf to read
  printf "$2" >"$1.fresh"
  mv -f "$1.fresh" "$1"
}

# Remove the replicas whose name begins with $1; print the text of each mark in hexadecimal digits.
koala_doubts() {
  rm -f "replicas/$1"* doubts/*.fresh
  for mark in doubts/*; do
    [ -f "$mark" ] || continue
    od -An -v -tx1 "$mark" | tr -d ' \n'
    echo
  done
}

# Note the holder $2 of the copy in the directory $1.
koala_hold() {
  mkdir -p "$1/holders"
  : >"$1/holders/$2"
}

# Stop the process that writes the copy in the directory $1, and remove the copy by way of the trash ($2).
koala_remove() {
  [ -e "$1" ] || return 0
  (cd "$1" && koala_stop)
  mv "$1" "$2.$$"
  rm -rf "$2.$$"
}
