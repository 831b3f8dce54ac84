# shellcheck shell=sh
# The job of a check: each of its nodes says its name and what it reads in the work directory. It ends with a file.

: "${koala_check_home?}"

printf 'koala check ran on %s\n' "$(uname -n)"
cd "$koala_check_home" || exit 9
koala_nodes >nodes || exit 8
while read -r koala_each koala_processors; do
    koala_read=$(koala_on_node "$koala_each" cat "$koala_check_home/word" </dev/null) || koala_read=
    printf '%s %s %s\n' "$koala_each" "$koala_processors" "$koala_read" >>seen.part
done <nodes
mv seen.part seen
echo 0 >done.part && mv done.part 'done'
