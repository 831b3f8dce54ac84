"""How the limits on a Slurm user are asked for, in one text. What it prints is read in
``koala.sites.batch.slurm.quota``.

Nearly all is asked of the controller, which knows each limit and its use. Where nothing is accounted, or nothing is
limited, the text prints nothing, and it never fails.
"""

from __future__ import annotations

import shlex

from koala.model.grid import BatchSettings
from koala.sites.batch.slurm.options import option
from koala.sites.batch.slurm.quota import (
    DEFAULT_WORD,
    ENFORCED_WORD,
    PARTITION_WORD,
    USER_WORD,
    Terms,
)
from koala.sites.batch.system import JOB_NAME_PREFIX
from koala.sites.shell_script import quoted

# The database behind the controller is waited for so long.
DATABASE_S = 5

# Of all that the controller prints: this user's associations, the accounts above them, and each QOS with the limits
# of one user and one account, ours where they are there: all users of a QOS have the same. What a site with thousands
# of accounts prints stays there. The exit code tells whether anything is limited.
_CHOOSE = r"""
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
}
"""


# Exits with 0 where one of Koala's jobs is in a partition of ours and goes by our account: the lines are those of
# ``koala.sites.batch.slurm.listing.JOB_FORMAT``.
_OUR_JOB_IS_THERE = rf"""
BEGIN {{ count = split(ENVIRON["koala_places"], names, ","); account = ENVIRON["koala_account"] }}
index($9, "{JOB_NAME_PREFIX}") == 1 && (account == "" || $6 == account) {{
    if (count == 0) found = 1
    for (n = 1; n <= count; n++) if (index("," $4 ",", "," names[n] ",")) found = 1
}}
END {{ exit !found }}
"""


def terms_of(settings: BatchSettings) -> Terms:
    """What a site's settings name, in any of the ways in which sbatch can be told. Its last option counts."""
    environment = dict(settings.environment)
    options = settings.submit_options
    account = option(options, "--account", "-A") or settings.account or environment.get("SBATCH_ACCOUNT")
    return Terms(account, option(options, "--qos", "-q") or environment.get("SBATCH_QOS"))


def quota_text(settings: BatchSettings) -> str:
    """Text that prints the limits of ``$koala_user``, if any. ``$koala_jobs`` are the jobs of this user: where one of
    ours is among them it tells its QOS, and the database need not be asked, which takes a quarter of a second."""
    text = (
        "koala_uid=$(id -u)\nexport koala_user koala_uid\n"
        'if koala_quota=$(scontrol show assoc_mgr flags=assoc,qos users="$koala_user" 2>/dev/null |\n'
        f"    awk {shlex.quote(_CHOOSE)}); then\n"
        f'    printf \'{USER_WORD}%s %s\\n%s\\n\' "$koala_user" "$koala_uid" "$koala_quota"\n'
        "    scontrol show config 2>/dev/null |\n"
        f"        sed -n 's/^AccountingStorageEnforce *= */{ENFORCED_WORD}/p'\n"
        "    scontrol --all --oneliner show partition 2>/dev/null |\n"
        f"        sed -n 's/^PartitionName=\\([^ ]*\\) .*QoS=\\([^ ]*\\) .*/{PARTITION_WORD}\\1 \\2/p'\n"
    )
    if terms_of(settings).qos is None:
        words = ["sacctmgr", "--noheader", "--parsable2", "show", "assoc"]
        words += ["format=Cluster,Account,Partition,DefaultQOS,QOS"]
        text += (
            f"    koala_places={shlex.quote(settings.queue or '')}\n"
            f"    koala_account={shlex.quote(terms_of(settings).account or '')}\n"
            "    export koala_places koala_account\n"
            f"    printf '%s\\n' \"$koala_jobs\" | awk -F'|' {shlex.quote(_OUR_JOB_IS_THERE)} ||\n"
            f'        {at_most(DATABASE_S, quoted(words))} user="$koala_user" 2>/dev/null |\n'
            f"        sed 's/^/{DEFAULT_WORD}/'\n"
        )
    return f"{text}fi\n"


def at_most(seconds: int, command: str) -> str:
    """A command that is ended after so long where the site has ``timeout``: clients of the database wait three
    quarters of a minute for one that does not answer."""
    return f"$(command -v timeout >/dev/null && echo timeout {seconds}) {command}"
