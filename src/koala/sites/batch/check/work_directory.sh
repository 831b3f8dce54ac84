# shellcheck shell=sh
# Make the work directory where there is none, write a file in it, and tell its path and how much room it has.

: "${koala_work?}" "${koala_trial?}"

if [ -d "$koala_work" ]; then
    echo there
else
    mkdir -p -- "$koala_work" || exit 1
    echo made
fi
cd -- "$koala_work" || exit 1
pwd
{ echo x >"$koala_trial" && mv "$koala_trial" "$koala_trial.2" && rm -f "$koala_trial.2"; } || exit 1
df -Pk . | sed -n '$p'
