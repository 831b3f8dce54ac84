# shellcheck shell=sh
# The limits on this user, for quota.py. Nearly all is asked of the controller, which knows each limit and its use.
# Where nothing is accounted, or nothing is limited, it prints nothing, and it never fails.
#
# A script sets the partition, the account and the QOS of submissions, each perhaps empty, the prefix of our jobs'
# names, and how many seconds the database is waited for.

: "${koala_partition?}" "${koala_account?}" "${koala_qos?}" "${koala_job_prefix?}" "${koala_database_s?}"

# koala_user is this user, and koala_jobs are its jobs: where one of ours is among them it tells its QOS, and the
# database need not be asked, which takes a quarter of a second. Where the controller's settings were read before, one
# that accounts for nothing is asked no more.
koala_quota() {
    case ${koala_accounting-} in
    'accounting_storage/none '*) return 0 ;;
    esac
    koala_uid=$(id -u)
    export koala_user koala_uid koala_partition koala_account koala_job_prefix
    koala_limits=$(scontrol show assoc_mgr flags=assoc,qos users="$koala_user" 2>/dev/null | koala_choose_limits) ||
        return 0
    koala_read_settings
    printf 'user %s %s\n%s\nenforced %s\n' "$koala_user" "$koala_uid" "$koala_limits" "${koala_accounting#* }"
    scontrol --all --oneliner show partition 2>/dev/null |
        sed -n 's/^PartitionName=\([^ ]*\) .*QoS=\([^ ]*\) .*/partition \1 \2/p'
    if [ -z "$koala_qos" ] && ! printf '%s\n' "${koala_jobs-}" | koala_our_job_is_there; then
        koala_at_most "$koala_database_s" sacctmgr --noheader --parsable2 show assoc \
            format=Cluster,Account,Partition,DefaultQOS,QOS user="$koala_user" 2>/dev/null | sed 's/^/default /'
    fi
}

# Of all that the controller prints: this user's associations, the accounts above them, and each QOS with the limits
# of one user and one account, ours where they are there: all users of a QOS have the same. What a site with thousands
# of accounts prints stays there. The exit code tells whether anything is limited.
koala_choose_limits() {
    awk '
        BEGIN { user = ENVIRON["koala_user"]; uid = ENVIRON["koala_uid"] }
        function value(name,    n) {
            for (n = 1; n <= NF; n++) if (index($n, name "=") == 1) return substr($n, length(name) + 2)
            return ""
        }
        function keep() {
            if (id == "") return
            text[id] = lines
            above[id] = parent
            if (owner == user) { mine[id] = account; accounts[account] = 1 } else if (owner == "") whole[account] = id
            id = ""
        }
        function show(some) {
            printf "%s", some
            if (some ~ /=[0-9]+\(|MaxWallPJ=[0-9]/) limited = 1
        }
        /^ClusterName=/ {
            keep()
            id = value("ID"); account = value("Account"); owner = value("UserName"); parent = ""; lines = $0 "\n"
            sub(/\(.*/, "", owner)
            next
        }
        /^QOS=/ { keep(); qos = qos $0 "\n"; within = ""; wanted = 1; next }
        id != "" && /ParentAccount=/ { parent = value("ParentAccount"); gsub(/.*\(|\)/, "", parent) }
        id != "" { if (/ParentAccount=|GrpJobs=|GrpTRES=|GrpTRESMins=|MaxJobs=/) lines = lines $0 "\n"; next }
        qos == "" { next }
        $2 == "Limits" { within = $1; wanted = 0; first = 1; qos = qos $0 "\n"; next }
        within != "" && NF == 1 && !/=/ {
            named = $1
            sub(/\(.*/, "", named)
            wanted = first || (within == "User" ? named == uid || named == user : named in accounts)
            first = 0
            if (wanted) qos = qos $0 "\n"
            next
        }
        wanted && /GrpJobs=|GrpTRES=|GrpTRESMins=|MaxJobsP[AU]=|MaxTRESP[AU]=|MaxWallPJ=[0-9]/ { qos = qos $0 "\n" }
        END {
            keep()
            for (each in mine) {
                show(text[each])
                for (one = whole[mine[each]]; one != "" && !(one in shown); one = above[one]) {
                    show(text[one])
                    shown[one] = 1
                }
            }
            show(qos)
            exit !limited
        }'
}

# Whether one of our jobs, in lines as a listing has them, is in a partition of ours and goes by our account.
koala_our_job_is_there() {
    awk -F'|' '
        BEGIN { count = split(ENVIRON["koala_partition"], names, ","); account = ENVIRON["koala_account"] }
        index($9, ENVIRON["koala_job_prefix"]) == 1 && (account == "" || $6 == account) {
            if (count == 0) found = 1
            for (n = 1; n <= count; n++) if (index("," $4 ",", "," names[n] ",")) found = 1
        }
        END { exit !found }'
}
