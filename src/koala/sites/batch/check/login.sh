# shellcheck shell=sh
# Start the shell of the account as an ssh server does for a command: bash reads ~/.bashrc then, if no shell is above it.

SHLVL=0 "${SHELL:-/bin/sh}" -c :
