"""How Slurm is asked for what its nodes have beside processors, in one text. What it prints is read in
``koala.sites.batch.slurm.needs``.

Nodes are asked for only where memory is shared out, or where the site's options make a difference between them. The
text never fails.
"""

from __future__ import annotations

import shlex

from koala.model.grid import BatchSettings
from koala.sites.batch.slurm.listing import NODE_FORMAT
from koala.sites.batch.slurm.needs import CONFIGURATION_WORD, NODE_WORD, PARTITION_WORD, USER_WORD
from koala.sites.batch.slurm.options import Sharing, asked_of
from koala.sites.shell_script import quoted

_CONFIGURATION = rf"""
$1 ~ /^(SelectTypeParameters|(Def|Max)MemPer(CPU|Node))$/ {{ print "{CONFIGURATION_WORD}" $1 "=" $3 }}
"""

# Of all that is printed of a partition or a node, a few fields. A comment at its end may look like one of them.
_CHOOSE = rf"""
BEGIN {{ count = split(ENVIRON["koala_places"], names, ",") }}
{{
    split("", seen)
    chosen = ""
    ours = count == 0
    for (n = 1; n <= NF; n++) {{
        name = $n
        sub(/=.*/, "", name)
        if (name in seen || name == $n) continue
        seen[name] = 1
        if (name == "Partitions" || name == "PartitionName")
            for (each = 1; each <= count; each++)
                if (index("," substr($n, length(name) + 2) ",", "," names[each] ",")) ours = 1
        if (name ~ /^((Partition|Node)Name|(Def|Max)MemPer(CPU|Node)|RealMemory|AllocMem|MemSpecLimit)$/ ||
            name ~ /^(CPUTot|Sockets|CoresPerSocket|ThreadsPerCore|ActiveFeatures|Owner)$/) chosen = chosen " " $n
    }}
    if (ours && "NodeName" in seen) print "{NODE_WORD.strip()}" chosen
    else if (ours && "PartitionName" in seen) print "{PARTITION_WORD.strip()}" chosen
}}
"""


def nodes_command(settings: BatchSettings) -> str:
    """Prints the nodes of the site's partitions, a line for each partition that they are in."""
    where = [] if settings.queue is None else [f"--partition={settings.queue}"]
    return quoted(["sinfo", "--noheader", "--Node", f"--format={NODE_FORMAT}", *where])


def needs_text(settings: BatchSettings) -> str:
    """Text that prints how memory is shared out and, where it matters, what partitions and nodes have."""
    asked = asked_of(settings)
    matters = "*_MEMORY*|*_Memory*"
    if asked.features.names or asked.sharing is Sharing.OWN_USER:
        matters = "*"
    choose = shlex.quote(_CHOOSE)
    return (
        f"koala_places={shlex.quote(settings.queue or '')}\nexport koala_places\n"
        f"koala_memory=$(scontrol show config 2>/dev/null | awk {shlex.quote(_CONFIGURATION)})\n"
        f"case $koala_memory in {matters})\n"
        f'    printf \'%s\\n%s\\n\' "{USER_WORD}$(id -un)" "$koala_memory"\n'
        f"    scontrol --all --oneliner show partition 2>/dev/null | awk {choose}\n"
        f"    scontrol --all --oneliner show node 2>/dev/null | awk {choose} ;;\n"
        "esac\n"
    )
