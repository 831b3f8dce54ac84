# shellcheck shell=sh
# What the tasks of a component need beside processors, in the words of Grid Engine, which counts by slots and by jobs.

# koala_task_requests TASKS PROCESSORS NAME=AMOUNT...: print what qsub is to be asked for (-l), for so many tasks of so
# many processors that take so much of each resource. What a slot uses up is divided by the slots of a task; what a job
# uses up is used up at its first node alone, so that it is enough for one task only. Memory that nobody uses up is what
# the host must have, or a limit.
koala_task_requests() {
    koala_tasks=$1
    koala_processors=$2
    shift 2
    koala_complexes=$(qconf -sc) || return 1
    koala_comma=
    for koala_each in "$@"; do
        koala_request=$(printf '%s\n' "$koala_complexes" | awk -v name="${koala_each%%=*}" \
            -v amount="${koala_each#*=}" -v tasks="$koala_tasks" -v slots="$koala_processors" '
            function refuse(words) { print "koala: " words >"/dev/stderr"; bad = 1; exit 1 }
            /^#/ || NF < 7 || ($1 != name && $2 != name) { next }
            { found = 1; used_up = toupper($6) }
            used_up == "JOB" || used_up == "HOST" {
                if (tasks > 1)
                    refuse($1 " of " tasks " tasks cannot be asked for here: a job uses it up at one node alone; " \
                        "write components of one task, or ask the operator for \"consumable YES\"")
                printf "%s=%.0f", $1, amount
                exit
            }
            used_up == "YES" {
                each = amount / slots
                whole = int(each) + (each > int(each))
                if ($3 == "DOUBLE") { printf "%s=%.6f", $1, each; exit }
                if ($3 != "MEMORY" && whole != each)
                    refuse(amount " " $1 " for a task of " slots " processors cannot be asked for here: each slot uses " \
                        "it up; write a multiple of " slots ", tasks of 1 processor, or ask the operator for " \
                        "\"consumable JOB\"")
                printf "%s=%.0f", $1, whole
                exit
            }
            $3 == "MEMORY" { printf "%s=%.0f", $1, amount; exit }
            { refuse($1 " cannot be asked for here: it is not consumable; name another in the grid file") }
            END {
                if (!found && !bad)
                    refuse("there is no resource " name " here; correct the grid file: qconf -sc lists them")
            }') || return 1
        printf '%s%s' "$koala_comma" "$koala_request"
        koala_comma=,
    done
}
