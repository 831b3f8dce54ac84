# shellcheck shell=sh disable=SC2154,SC2217
# Prints a file from byte $at on, up to byte $end, no faster than $most bytes in $pause_s seconds. The pause runs beside
# the output, so that a link that is just as fast as the limit is used fully. It ends when the reader is gone. Its lines
# are joined by spaces into one, because not every login shell accepts more.
while [ "$at" -lt "$end" ]; do
  sleep "$pause_s" </dev/null >/dev/null 2>&1 &
  size=$((end - at)); [ "$size" -le "$most" ] || size=$most;
  [ -r "$file" ] || exit; tail -c "+$((at + 1))" "$file" | head -c "$size" || exit;
  at=$((at + size)); [ "$at" -ge "$end" ] || wait;
done
