"""What the limits of accounts and qualities of service (QOS) leave to a Slurm user, from the output of the
controller.

``quota.sh`` asks for it; ``koala.sites.batch.slurm.listing`` applies it to idle processors.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence

import msgspec

from koala.model.grid import BatchSettings
from koala.sites.batch.slurm.options import option

# Precede the lines that ``quota.sh`` adds: our user, the enforced limits, the QOS of a partition, and of an
# association.
_USER_WORD, _ENFORCED_WORD, _PARTITION_WORD, _DEFAULT_WORD = "user ", "enforced ", "partition ", "default "
_ASSOCIATION_WORD, _QOS_WORD = "ClusterName=", "QOS="
# A job uses some of each, so it waits if any of them is used up.
_BUDGETS = ("cpu", "node", "billing")
_NOBODY = ("", "N/A", "(null)")
_PROCESSORS, _JOBS, _MINUTES = "processors", "jobs", "minutes"


class Terms(msgspec.Struct, frozen=True):
    """The account and the QOS of a job; None is Slurm's default."""

    account: str | None = None
    qos: str | None = None


def terms_of(settings: BatchSettings) -> Terms:
    """Return the terms of a site's settings, as options of sbatch, as settings or as variables. The last option
    counts."""
    environment = dict(settings.environment)
    options = settings.submit_options
    account = option(options, "--account", "-A") or settings.account or environment.get("SBATCH_ACCOUNT")
    return Terms(account, option(options, "--qos", "-q") or environment.get("SBATCH_QOS"))


class SlurmQuota(msgspec.Struct, frozen=True):
    """How many processors our jobs may have in total, and how many more now; None without a limit. ``why`` names the
    limit on the total. ``longest_s`` is how long a job may run."""

    most: int | None = None
    left: int | None = None
    why: str = ""
    longest_s: float | None = None


class _Limit(msgspec.Struct, frozen=True):
    """``where`` names it as an operator would, such as GrpTRES of account physics."""

    of: str  # processors, jobs or minutes
    where: str
    most: int
    used: int


class _Association(msgspec.Struct, frozen=True):
    cluster: str
    account: str
    user: str
    partition: str
    fields: dict[str, str]


class _Qos(msgspec.Struct, frozen=True):
    fields: dict[str, str]
    accounts: dict[str, dict[str, str]]
    users: dict[str, dict[str, str]]


class _Report(msgspec.Struct, frozen=True):
    """All that ``quota.sh`` prints."""

    names: set[str]  # of this user: the name and the number
    enforced: set[str]
    associations: list[_Association]
    qualities: dict[str, _Qos]
    of_partitions: dict[str, str]  # the QOS of each partition
    defaults: list[list[str]]


def parse_quota(lines: Sequence[str], terms: Terms, partitions: Collection[str], newest: Terms) -> SlurmQuota:
    """Return what is left to a job with these terms in these partitions; ``newest`` are the terms of our newest job.
    Unknown or unintelligible limits do not count: they show when a job waits for them.

    As in Slurm, the partition's QOS overrides the job's QOS, which overrides the association and all accounts above
    it.
    """
    report = _read(lines)
    own = _own_association(report, terms.account or newest.account, partitions)
    if own is None or "limits" not in report.enforced:
        return SlurmQuota()
    name = terms.qos or newest.qos or _default_qos(report, own)
    limits: dict[str, _Limit] = {}
    longest_s = _longest_s(own.fields)
    for each in (name, _partition_qos(report, partitions)):
        if each in report.qualities:
            limits |= _qos_limits(each, report.qualities[each], own.account, report.names)
            longest_s = _longest_s(report.qualities[each].fields) or longest_s
    every = [*limits.values(), *_association_limits(report, own, limits)]
    return msgspec.structs.replace(_quota(every), longest_s=longest_s)


def _longest_s(fields: Mapping[str, str]) -> float | None:
    """Return ``MaxWallPJ=60`` as the seconds of an hour."""
    text = fields.get("MaxWallPJ", "")
    return 60.0 * int(text) if re.fullmatch(r"[1-9]\d{0,8}", text, re.ASCII) else None


def _quota(limits: Sequence[_Limit]) -> SlurmQuota:
    of_processors = [each for each in limits if each.of == _PROCESSORS]
    is_full = any(each.used >= each.most for each in limits)
    if not of_processors:
        return SlurmQuota(left=0 if is_full else None)
    least = min(of_processors, key=lambda limit: limit.most)
    left = min(each.most - each.used for each in of_processors)
    return SlurmQuota(least.most, 0 if is_full else left, f"{least.most} processors ({least.where})")


def _read(lines: Sequence[str]) -> _Report:
    report = _Report(set(), set(), [], {}, {}, [])
    fields: dict[str, str] = {}
    named: dict[str, dict[str, str]] = {}
    for line in lines:
        words = line.split()
        if line.startswith(_USER_WORD):
            report.names.update(words[1:])
        elif line.startswith(_ENFORCED_WORD):
            report.enforced.update("".join(words[1:]).lower().split(","))
        elif line.startswith(_PARTITION_WORD) and len(words) == 3:
            report.of_partitions[words[1]] = words[2]
        elif line.startswith(_DEFAULT_WORD):
            report.defaults.append(line.removeprefix(_DEFAULT_WORD).split("|"))
        elif line.startswith(_ASSOCIATION_WORD):
            fields = _fields(words)
            report.associations.append(_association(fields))
        elif line.startswith(_QOS_WORD):
            fields = _fields(words)
            quality = report.qualities[_bare(fields["QOS"])] = _Qos(fields, {}, {})
        elif words[-1:] == ["Limits"] and report.qualities:
            named = quality.users if words[0] == "User" else quality.accounts
        elif len(words) == 1 and "=" not in line:
            fields = named[_bare(words[0])] = {}
        else:
            fields |= _fields(words)
    return report


def _fields(words: Sequence[str]) -> dict[str, str]:
    return {name: value for name, sign, value in (word.partition("=") for word in words) if sign}


def _bare(name: str) -> str:
    """Return a name without the number behind it: ``physics(3)``."""
    return name.partition("(")[0]


def _association(fields: dict[str, str]) -> _Association:
    return _Association(
        fields["ClusterName"],
        fields.get("Account", ""),
        _bare(fields.get("UserName", "")),
        fields.get("Partition", ""),
        fields,
    )


# ---------------------------------------------------------------------------------- which of all these are ours


def _own_association(report: _Report, account: str | None, partitions: Collection[str]) -> _Association | None:
    """Return the association of our jobs; an association for their partition overrides one for all."""
    ours = [
        each
        for each in report.associations
        if each.user in report.names and (not each.partition or each.partition in partitions)
    ]
    if account is not None:
        ours = [each for each in ours if each.account == account]
    elif len({each.account for each in ours}) > 1:
        ours = [each for each in ours if each.fields.get("DefAssoc") == "Yes"]
    return max(ours, key=lambda each: bool(each.partition), default=None)


def _default_qos(report: _Report, own: _Association) -> str | None:
    """Return Slurm's QOS for a job that names none: the association's default, or its only one, or the QOS called
    normal. None if the database did not answer."""
    for row in report.defaults:
        if len(row) == 5 and row[:3] == [own.cluster, own.account, own.partition]:
            allowed = row[4].split(",")
            return row[3] or (allowed[0] if len(allowed) == 1 and allowed[0] else "normal")
    return None


def _partition_qos(report: _Report, partitions: Collection[str]) -> str | None:
    """Return the QOS that all these partitions share; if they differ, a job may start in any of them."""
    found = {report.of_partitions.get(each, "") for each in partitions}
    return next(iter(found)) if len(found) == 1 and found.isdisjoint(_NOBODY) else None


# --------------------------------------------------------------------------------------------------- the limits


def _qos_limits(name: str, quality: _Qos, account: str, user: Collection[str]) -> dict[str, _Limit]:
    where = f"of QOS {name}"
    found = _group_limits(quality.fields, where)
    for kind, records, ours in (("A", quality.accounts, {account}), ("U", quality.users, set(user))):
        for own, fields in records.items():
            of_one = {
                f"MaxTRESP{kind}": _limit(_PROCESSORS, f"MaxTRESP{kind} {where}", _part(fields, f"MaxTRESP{kind}")),
                f"MaxJobsP{kind}": _limit(_JOBS, f"MaxJobsP{kind} {where}", fields.get(f"MaxJobsP{kind}", "")),
            }
            for key, limit in of_one.items():
                if limit is not None and own in ours:
                    found[key] = limit
                elif limit is not None:  # others have the same limit, and a use of their own
                    found.setdefault(key, msgspec.structs.replace(limit, used=0))
    return found


def _association_limits(report: _Report, own: _Association, over: Mapping[str, _Limit]) -> Iterator[_Limit]:
    """Yield the limits of the association and of all accounts above it, except those that a QOS overrides."""
    jobs = _limit(_JOBS, f"MaxJobs of user {own.user}", own.fields.get("MaxJobs", ""))
    if jobs is not None and "MaxJobsPU" not in over:
        yield jobs
    accounts = {each.account: each for each in report.associations if not each.user}
    chain, name = [(own, f"of user {own.user}")], own.account
    while name in accounts:
        chain.append((accounts.pop(name), f"of account {name}"))
        name = _bare(chain[-1][0].fields.get("ParentAccount", ""))
    for each, where in chain:
        for key, limit in _group_limits(each.fields, where).items():
            if key not in over:
                yield limit


def _group_limits(fields: Mapping[str, str], where: str) -> dict[str, _Limit]:
    found = {
        "GrpTRES": _limit(_PROCESSORS, f"GrpTRES {where}", _part(fields, "GrpTRES")),
        "GrpJobs": _limit(_JOBS, f"GrpJobs {where}", fields.get("GrpJobs", "")),
    }
    for resource in _BUDGETS:
        name = f"GrpTRESMins {resource}"
        found[name] = _limit(_MINUTES, f"{name} {where}", _part(fields, "GrpTRESMins", resource))
    return {key: limit for key, limit in found.items() if limit is not None}


def _part(fields: Mapping[str, str], name: str, resource: str = "cpu") -> str:
    """Return ``6(2)`` from ``cpu=6(2),mem=N(0)``."""
    parts = (part.partition("=") for part in fields.get(name, "").split(","))
    return next((value for key, _, value in parts if key == resource), "")


def _limit(of: str, where: str, text: str) -> _Limit | None:
    """Parse ``6(2)``, a limit with its use; None for ``N(2)``, which is no limit."""
    match = re.fullmatch(r"(\d{1,18})\((\d{1,18})(?:\.\d*)?\)", text, re.ASCII)
    return None if match is None else _Limit(of, where, int(match[1]), int(match[2]))
