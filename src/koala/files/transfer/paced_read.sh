# shellcheck shell=sh disable=SC2154,SC2217
# Prints a file from byte $at on, up to byte $end, no faster than $most bytes in $pause_s seconds. The time runs beside
# the bytes, so that a link that is just as fast as the limit is used in full. It ends when nobody reads any more.
# Its lines are joined by spaces into one, since not every login shell takes more.
while [ "$at" -lt "$end" ]; do
  sleep "$pause_s" </dev/null >/dev/null 2>&1 &
  size=$((end - at)); [ "$size" -le "$most" ] || size=$most;
  [ -r "$file" ] || exit; tail -c "+$((at + 1))" "$file" | head -c "$size" || exit;
  at=$((at + size)); [ "$at" -ge "$end" ] || wait;
done
