# shellcheck shell=sh
# The steps of a piece's transfer at its target; the working directory is the copy's. In it are the unfinished file
# ``part``, ``stamp``, which identifies its origin, and in the end ``data`` and ``checksum``. Needs the functions of
# process.sh and of koala/files/area/area.sh.

# Print the verified checksum of the finished copy of $1 bytes, if there is one.
koala_finished() {
  if [ -f data ] && [ "$(wc -c <data)" -eq "$1" ]; then cat checksum; fi
}

# Begin anew a copy of the origin $1; $2 is the growing file. The part comes only after the stamp, so that no byte is
# ever attributed to another file.
koala_begin() {
  koala_stop
  rm -f part "$2"
  echo "$1" >stamp.fresh
  mv -f stamp.fresh stamp
  : >part
}

# Print the sizes of the part and of the growing file ($2), if this is a copy of the origin $1.
koala_found() {
  [ -e part ] && [ "$(cat stamp 2>/dev/null)" = "$1" ] || return 0
  koala_size_or_none part
  koala_size_or_none "$2"
}

koala_finish() {
  echo "$1" >checksum
  koala_appear part data
}

# Let a file server read a file ($1) under another name ($2).
koala_serve() {
  rm -f "$2"
  ln "$1" "$2" 2>/dev/null || ln -s "$1" "$2"
}

# Move what a file server has written ($1) into a part ($2): $4 bytes from byte $3 on. A whole file ($5 is yes) that
# belongs to this account is only renamed.
koala_collect() {
  [ -e "$1" ] || return 0
  if [ "$5" = yes ] && [ -O "$1" ]; then
    mv -f "$1" "$2"
    return 0
  fi
  koala_read "$1" "$3" "$4" >"$2"
  rm -f "$1"
}

# Print the output of a command that reads from another site, and then whether this site has rsync.
koala_reaches() {
  "$@" 2>/dev/null </dev/null || return 0
  if command -v rsync >/dev/null; then echo rsync; fi
}
