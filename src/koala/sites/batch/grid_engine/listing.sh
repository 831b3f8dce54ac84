# shellcheck shell=sh
# What Grid Engine shows of a cell.

: "${koala_job_prefix?}"

# koala_listing PARALLEL_ENVIRONMENT RESOURCES KIND WORDS...: the environment may be empty, the names of resources that
# jobs ask for have commas around, KIND is the resource that names the kind of a host's GPUs or empty, and the words are
# for qselect, which complains only where it also says why. Of other resources with a default every job takes some. Only
# amounts count, see needs.py and nodes.py.
koala_listing() {
    koala_environment=$1
    koala_asked=$2
    koala_kind=$3
    shift 3
    koala_user=$(id -un) || return 1
    koala_complexes=$(qconf -sc 2>/dev/null | awk -v asked="$koala_asked" -v kind="$koala_kind" '
        /^#/ || NF < 7 || $1 == "slots" || $1 == "h_rt" { next }
        $1 == kind || $2 == kind { print; next }
        $3 !~ /^(INT|DOUBLE|MEMORY|TIME|RSMAP)$/ || $4 != "<=" { next }
        index(asked, "," $1 ",") || index(asked, "," $2 ",") { print; next }
        $6 != "NO" && $7 != "NONE" && $7 !~ /^[0:.]*$/ { print }')
    koala_names=
    koala_hosts=
    if [ -n "$koala_complexes" ]; then
        koala_names=$(printf '%s\n' "$koala_complexes" | awk 'NF { printf ",%s", $1 }')
        koala_hosts=$(qhost -F "${koala_names#,}" -xml 2>/dev/null) || koala_hosts=
    fi
    # The site may be in another time zone: times are those of UTC.
    koala_jobs=$(TZ=UTC0 qstat -F "slots,h_rt$koala_names" -u '*' -r -xml) || return 1
    koala_queues=$(qselect -U "$koala_user" "$@" 2>&1) || case $koala_queues in
        '') ;;
        *"no such parallel environment"*) koala_queues= ;;
        *)
            printf '%s\n' "$koala_queues" >&2
            return 1
            ;;
    esac
    koala_quotas=$(qquota -l slots -xml) || return 1
    if [ -n "$koala_environment" ]; then
        koala_environment=$(qconf -sp "$koala_environment" 2>&1) || case $koala_environment in
            *"does not exist"* | *"is not a parallel environment"*) koala_environment= ;;
            *)
                printf '%s\n' "$koala_environment" >&2
                return 1
                ;;
        esac
    fi
    # Why a job is in error only qstat -j tells; it is asked where one of ours is.
    koala_errors=
    case $koala_jobs in
    *"<state>E"* | *"<state>"[A-Za-z]E* | *"<state>"[A-Za-z][A-Za-z]E* | *"<state>"[A-Za-z][A-Za-z][A-Za-z]E*)
        koala_errors=$(printf '%s\n' "$koala_jobs" | koala_choose_failed)
        ;;
    esac
    if [ -n "$koala_errors" ]; then
        koala_errors=$(qstat -j "$koala_errors" 2>/dev/null | sed -n -e '/^job_number:/p' -e '/^error reason/p')
    fi
    printf 'koala: %s\n%s\n' user "$koala_user" jobs "$koala_jobs" queues "$koala_queues" \
        environment "$koala_environment" quotas "$koala_quotas" errors "$koala_errors" \
        complexes "$koala_complexes" hosts "$koala_hosts" end ''
}

# The numbers of our jobs that are in error, of all that qstat prints.
koala_choose_failed() {
    awk -v prefix="$koala_job_prefix" '
        /<JB_job_number>/ { id = $0; gsub(/[^0-9]/, "", id); ours = 0 }
        index($0, "<JB_name>" prefix) { ours = 1 }
        ours && /<state>[A-Za-z]*E/ { printf "%s%s", comma, id; comma = "," }'
}
