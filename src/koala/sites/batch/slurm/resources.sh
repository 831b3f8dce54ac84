# shellcheck shell=sh
# What nodes have beside processors, for resources.py. Nodes are asked for only where memory is shared out, where there
# are GPUs, or where the site's options make a difference between them, which koala_nodes_differ says. It never fails.

: "${koala_partition?}" "${koala_nodes_differ?}"

# What the controller is set to: in koala_accounting how it accounts and what it enforces, in koala_sharing a line for
# each setting of what is shared out. It is asked once.
koala_read_settings() {
    if [ -z "${koala_accounting-}" ]; then
        koala_sharing=$(scontrol show config 2>/dev/null | awk '
            $1 == "AccountingStorageType" { kind = $3 }
            $1 == "AccountingStorageEnforce" { enforced = $3 }
            $1 ~ /^(SelectTypeParameters|GresTypes|(Def|Max)MemPer(CPU|Node))$/ { print "configuration " $1 "=" $3 }
            END { print kind " " enforced }')
        koala_accounting=${koala_sharing##*"
"}
        koala_sharing=${koala_sharing%"$koala_accounting"}
    fi
}

koala_resources() {
    export koala_partition
    koala_read_settings
    case $koala_nodes_differ$koala_sharing in
    yes* | *_MEMORY* | *_Memory* | *GresTypes=*gpu*)
        printf 'user %s\n%s' "${koala_user:-$(id -un)}" "$koala_sharing"
        scontrol --all --oneliner show partition 2>/dev/null | koala_choose_fields
        scontrol --all --details --oneliner show node 2>/dev/null | koala_choose_fields
        ;;
    esac
}

# Of all that is printed of a partition or a node, a few fields. A comment at its end may look like one of them.
koala_choose_fields() {
    awk '
        BEGIN { count = split(ENVIRON["koala_partition"], names, ",") }
        {
            split("", seen)
            chosen = ""
            ours = count == 0
            for (n = 1; n <= NF; n++) {
                name = $n
                sub(/=.*/, "", name)
                if (name in seen || name == $n) continue
                seen[name] = 1
                if (name == "Partitions" || name == "PartitionName")
                    for (each = 1; each <= count; each++)
                        if (index("," substr($n, length(name) + 2) ",", "," names[each] ",")) ours = 1
                if (name ~ /^((Partition|Node)Name|(Def|Max)MemPer(CPU|Node)|RealMemory|AllocMem|MemSpecLimit)$/ ||
                    name ~ /^(CPUTot|CPUAlloc|Sockets|CoresPerSocket|ThreadsPerCore|ActiveFeatures|Owner)$/ ||
                    name ~ /^(Gres|GresUsed)$/)
                    chosen = chosen " " $n
            }
            if (ours && "NodeName" in seen) print "node" chosen
            else if (ours && "PartitionName" in seen) print "partition" chosen
        }'
}
