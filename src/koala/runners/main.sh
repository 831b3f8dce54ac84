# shellcheck shell=sh
# The life of a component, from its start to its end.
# shellcheck disable=SC2153,SC2154  # other parts of the script set them

# Go to the application's directory: the workspace, a directory below it that the user chose, or a directory of the
# site.
koala_enter() {
    case $koala_directory in
    /*) cd "$koala_directory" || return ;;
    '') cd "$koala_home/workspace" || return ;;
    # "./" keeps a name like "-" from being taken for an option.
    *) { cd "$koala_home/workspace" && mkdir -p "./$koala_directory" && cd "./$koala_directory"; } || return ;;
    esac
}

# Most sites have made these directories.
koala_make_directories() {
    if [ ! -d workspace ] || [ ! -d inbox ] || [ ! -d outbox ]; then
        mkdir -p workspace inbox outbox
    fi
}

koala_put_job_script() {
    printf '%s' "$koala_job_script" >job-script || return
    [ -z "$koala_job_script" ] || chmod 700 job-script
}

# Make the directory of an output file, if the user names one below that of the application.
koala_make_room() {
    case $1 in
    /*) ;;
    */*) mkdir -p "./${1%/*}" ;;
    esac
}

# Give an output file a second name in the usual place, if nobody else can find its name; a file on another disk has
# only its own name.
koala_second_name() {
    if [ -n "$koala_site_in_names" ] && [ -n "$2" ]; then
        ln -f "$2" "$koala_home/$1" 2>/dev/null
    fi
    return 0
}

# Open the application's streams there. A file must not be opened twice, because the two would overwrite each other.
koala_open_streams() {
    koala_make_room "$koala_stderr" && koala_make_room "$koala_stdout"
    exec 2>"${koala_stderr:-$koala_home/stderr}"
    exec <"${koala_stdin:-/dev/null}"
    if [ -n "$koala_stdout" ] && [ "$koala_stdout" = "$koala_stderr" ]; then
        exec >&2
    else
        exec >"${koala_stdout:-$koala_home/stdout}"
    fi
    koala_second_name stderr "$koala_stderr"
    koala_second_name stdout "$koala_stdout"
}

# Set the variables that a batch script relies on, where the batch system has not set them. They describe the component,
# like the batch system's own where there is one. The name of the job and its submission directory are always Koala's.
koala_batch_variables() {
    [ -n "$koala_batch_system" ] || return 0
    koala_count_nodes
    case $koala_batch_system in
    slurm) koala_slurm_variables ;;
    pbs) koala_pbs_variables ;;
    grid-engine) koala_grid_engine_variables ;;
    esac
}

koala_slurm_variables() {
    SLURM_JOB_NAME=$koala_job_name
    SLURM_SUBMIT_DIR=$koala_home/workspace
    : "${SLURM_JOB_ID:=$koala_batch_job}" "${SLURM_NTASKS:=$koala_tasks}" "${SLURM_NPROCS:=$koala_tasks}" \
        "${SLURM_CPUS_PER_TASK:=$koala_processors_per_task}" "${SLURM_JOB_NUM_NODES:=$koala_node_count}" \
        "${SLURM_CPUS_ON_NODE:=$koala_first_processors}" \
        "${SLURM_PROCID:=0}" "${SLURM_LOCALID:=0}" "${SLURM_NODEID:=0}" "${SLURMD_NODENAME:=$koala_host}"
    : "${SLURM_NNODES:=$SLURM_JOB_NUM_NODES}"
    export SLURM_JOB_NAME SLURM_SUBMIT_DIR SLURM_JOB_ID SLURM_NTASKS SLURM_NPROCS SLURM_CPUS_PER_TASK \
        SLURM_JOB_NUM_NODES SLURM_NNODES SLURM_CPUS_ON_NODE SLURM_PROCID SLURM_LOCALID SLURM_NODEID SLURMD_NODENAME
    if [ "$koala_task_gpus" -gt 0 ]; then
        : "${SLURM_GPUS_ON_NODE:=$((SLURM_CPUS_ON_NODE * koala_task_gpus / koala_processors_per_task))}"
        export SLURM_GPUS_ON_NODE
    fi
}

# No site runs PBS, so these are Koala's. PBS_ENVIRONMENT and PBS_NODEFILE would make launchers believe that PBS is
# there.
koala_pbs_variables() {
    PBS_JOBID=$koala_batch_job
    PBS_JOBNAME=$koala_job_name
    PBS_O_WORKDIR=$koala_home/workspace
    PBS_NP=$koala_processors
    PBS_NUM_NODES=$koala_node_count
    PBS_NUM_PPN=$koala_first_processors
    NCPUS=$koala_first_processors
    export PBS_JOBID PBS_JOBNAME PBS_O_WORKDIR PBS_NP PBS_NUM_NODES PBS_NUM_PPN NCPUS
}

koala_grid_engine_variables() {
    JOB_NAME=$koala_job_name
    SGE_O_WORKDIR=$koala_home/workspace
    : "${JOB_ID:=$koala_batch_job}" "${NSLOTS:=$koala_processors}" "${NHOSTS:=$koala_node_count}" \
        "${SGE_TASK_ID:=undefined}"
    export JOB_NAME SGE_O_WORKDIR JOB_ID NSLOTS NHOSTS SGE_TASK_ID
}

# Put the number of nodes, and the component's processors on the first one, into variables.
koala_count_nodes() {
    koala_node_count=0
    koala_first_processors=
    while read -r _ koala_number; do
        koala_node_count=$((koala_node_count + 1))
        [ "$koala_node_count" -gt 1 ] || koala_first_processors=$koala_number
    done <"$koala_home/nodes"
}

# Unpack the files that travel with the job, which are an archive until here. Owners and times are the present ones.
koala_unpack() {
    cd "$koala_home/workspace" && tar -xmof .koala-files && rm -f .koala-files
}

koala_application() {
    exec 2>"$koala_home/stderr"
    umask "$koala_umask"
    if [ -h "$koala_home/workspace/.koala-files" ]; then
        (koala_unpack) || exit 126
    fi
    if [ -n "$koala_checkpoint" ]; then
        (koala_restore) || exit 126
    fi
    koala_enter || exit 126
    koala_open_streams
    koala_batch_variables
    case $koala_job_type in
    mpi) koala_mpi ;;
    torchrun) koala_torchrun ;;
    *) koala_run ;;
    esac
}

koala_end_of() {
    tail -c "$koala_stderr_bytes" <"$1" | tr -d '\000'
}

# Print the last line that is not empty.
koala_last_of() {
    # shellcheck disable=SC2016  # the dollar is sed's
    LC_ALL=C sed -n -e '/[^[:space:]]/h' -e '${x;p;}' | head -c "$koala_line_bytes"
}

# Print a launcher's messages about the end of its tasks, which come after the tasks' own last words and hide them.
koala_without_echoes() {
    LC_ALL=C sed \
        -e '/^srun: error: .*: tasks\{0,1\} [0-9,-]*: /d' \
        -e '/^srun: forcing job termination/d' \
        -e '/^srun: Terminating StepId=/d' \
        -e '/^srun: launch\/slurm: /d' \
        -e '/^srun: Job step aborted: /d' \
        -e '/^srun: cluster configuration lacks /d' \
        -e '/^slurmstepd.*: error: \*\*\* STEP .* CANCELLED AT [^ ]* \*\*\*$/d' \
        -e '/(check for firewalls!)$/d' \
        -e '/^Terminated$/d' -e '/^Killed$/d'
}

# koala_last_line FILE: print its last line that is neither empty nor an echo, or else the last line.
koala_last_line() {
    [ -f "$1" ] || return 0
    koala_said=$(koala_end_of "$1" | koala_without_echoes | koala_last_of)
    [ -n "$koala_said" ] || koala_said=$(koala_end_of "$1" | koala_last_of)
    printf '%s' "$koala_said"
}

# Print the program, or the one that the last line names, if it is a script whose first line ends as in DOS: then the
# kernel looks for an interpreter whose name ends with that sign, and the only message is that the program is not found.
koala_dos_program() {
    if [ -n "$koala_job_script" ]; then
        ! koala_has_dos_lines "$koala_home/job-script" || printf '%s\n' "$koala_executable"
    elif koala_has_dos_lines "$(command -v -- "$koala_executable")"; then
        printf '%s\n' "$koala_executable"
    fi
    set -f
    IFS=' :'
    for koala_word in $koala_line; do
        ! koala_has_dos_lines "$koala_word" || printf '%s\n' "$koala_word"
    done
}

koala_has_dos_lines() {
    [ -f "$1" ] && [ -n "$(head -c 256 <"$1" | LC_ALL=C sed -n "1{/^#!.*$(printf '\r')\$/p;}")" ]
}

# Record the last line that a failed application wrote to standard error, for readers of its end.
koala_put_last_line() {
    koala_line=$( (koala_enter && koala_last_line "${koala_stderr:-$koala_home/stderr}") 2>/dev/null)
    # The complaint about a file that cannot be opened is in the usual place.
    [ -n "$koala_line" ] || koala_line=$(koala_last_line "$koala_home/stderr" 2>/dev/null)
    # A shell names the job's script by its path, which is long.
    koala_line=${koala_line#"$koala_home/"}
    case $koala_code in
    126 | 127)
        koala_dos=$( (koala_enter && koala_dos_program | head -n 1) 2>/dev/null)
        [ -z "$koala_dos" ] || koala_line="$koala_dos: its lines end as in DOS (CRLF), so that its interpreter is not \
found: save it with Unix line ends"
        ;;
    esac
    [ -z "$koala_line" ] || koala_put last-line "$koala_line"
}

# The commands that run on any of the nodes.
case ${1-} in
rank)
    koala_home=$KOALA_HOME
    koala_rank
    ;;
proxy)
    koala_home=$KOALA_HOME
    shift
    koala_proxy "$@"
    ;;
worker)
    koala_home=$KOALA_HOME
    koala_worker "$2" "$3" "$4"
    ;;
contained)
    koala_home=$KOALA_HOME
    shift
    koala_contained "$@"
    ;;
esac

cd -P . || exit "$koala_exit_unwritten"
koala_home=$PWD
koala_be_first
trap 'koala_finish killed' TERM INT HUP
if ! { koala_make_directories && koala_put_job_script; }; then
    koala_unwritten
fi
if [ -e site ]; then
    # shellcheck source=/dev/null
    . "$koala_home/site"
fi
if ! koala_put_nodes; then
    echo 'koala: the site does not report which nodes this component has' >&2
    koala_finish no-nodes
fi
koala_keep ready "$koala_host" "$koala_write_tenths" || koala_unwritten
koala_wait_for go
if ! printf '' >"$koala_home/stderr"; then
    koala_unwritten
fi
# From here on a signal is for the application; the script survives to record how it ended.
trap : TERM INT HUP
koala_watch_over_saving
koala_count_here
koala_begin_measuring
(koala_application)
koala_code=$?
koala_put_usage
koala_stop_counting
koala_stop_watching
[ "$koala_code" -eq 0 ] || koala_put_last_line
koala_finish "exited $koala_code"
