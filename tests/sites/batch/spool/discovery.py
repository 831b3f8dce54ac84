"""How clusters of the batch system for tests are found."""

from __future__ import annotations

from koala.sites.batch.discovery import FoundQueue, Printed, SystemDiscovery

SCRIPT = """
koala_find_spool() {
    command -v spsub >/dev/null 2>&1 || return 0
    if koala_said=$(spstat -q 2>&1); then
        printf 'spool-queue %s\\n' "$koala_said"
        printf 'spool-name pool\\nspool-master %s\\n' "$SPOOL_ROOT"
    else
        printf 'spool-silent %s\\n' "$(koala_last_line "$koala_said")"
    fi
}
"""


def found_queues(printed: Printed) -> list[FoundQueue]:
    """Lines of name and processors."""
    pairs = [line.split() for line in printed.get("queue", [])]
    return [
        FoundQueue(name=name, processors=int(processors), is_default=True, own=(("job_class", "low"),))
        for name, processors in pairs
    ]


DISCOVERY = SystemDiscovery(variables=("SPOOL_ROOT",), script=SCRIPT, queues=found_queues)
