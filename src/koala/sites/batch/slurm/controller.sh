# shellcheck shell=sh
# Whether slurmctld answers. Without a configuration Slurm's programs look for one elsewhere, for long.

if [ -n "${SLURM_CONF-}" ] && ! [ -r "$SLURM_CONF" ]; then
    echo "SLURM_CONF is $SLURM_CONF, which cannot be read" >&2
    exit 1
fi
scontrol ping
