"""The keys of a grid file for access to a site under a batch system and for its use, and the way to BatchSettings.

The values are checked here; ``findings`` checks which keys belong to which kind of site. The keys that a batch system
alone has come from its record.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Annotated

from pydantic import AfterValidator, Field, create_model

from koala.descriptions.errors import CONTROL, shown
from koala.descriptions.fields import Description, Label, SomeText, Text
from koala.descriptions.yaml.problems import wrong
from koala.model.grid import BatchSettings, Claims
from koala.sites.batch.kind import GridKey
from koala.sites.batch.systems import SYSTEMS, kind_lines, titles

# The most entries of each list and each mapping of a site under a batch system.
BATCH_ENTRIES_MAX = 100
# The longest path of a work directory: a job's paths lie below it, and the whole must be a valid path.
WORK_DIRECTORY_BYTES_MAX = 1_024
# Each site has a directory of its own below it: clusters often share their users' homes.
WORK_DIRECTORIES = "~/koala"

# In paths batch systems give these characters meanings of their own, and have no escape for them.
_NOT_IN_PATHS = "\\,$"

_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BLANK = re.compile(r"\s")
_HOST = re.compile(r"[A-Za-z0-9_.@:%\[\]-]+")


def _read_path(path: str) -> str:
    _refuse_control(path, "the path")
    if not path.startswith(("/", "~/")):
        raise wrong(
            f"{shown(path)} is not an absolute path",
            "write a path that begins with '/', or with '~/' for your home there",
        )
    return path


def _read_work_directory(path: str) -> str:
    found = next((sign for sign in _NOT_IN_PATHS if sign in _read_path(path)), None)
    if found is not None:
        raise wrong(f"{shown(path)} holds the sign {found}", "name a directory without it")
    size = len(path.encode("utf-8", "surrogatepass"))
    if size > WORK_DIRECTORY_BYTES_MAX:
        limit = f"{WORK_DIRECTORY_BYTES_MAX} (WORK_DIRECTORY_BYTES_MAX)"
        raise wrong(f"its path has {size} bytes, more than {limit}", "name a directory that is less deep")
    return path


def _read_program_directory(path: str) -> str:
    if ":" in _read_path(path):
        raise wrong(f"{shown(path)} holds a colon", "write one directory for each entry of the list")
    return path


def _read_plain_word(word: str) -> str:
    """Read a word that stands alone in a command: it can be taken neither for an option nor for two words."""
    _refuse_control(word, "the word")
    if word.startswith("-"):
        raise wrong(f"{shown(word)} begins with '-' and would be taken for an option", "write a name")
    if _BLANK.search(word):
        raise wrong(f"{shown(word)} holds a blank", "write one word; several are separated by commas")
    return word


def _own_word(key: GridKey) -> Callable[[str], str]:
    """Return the reader of a value of a key that one batch system has."""

    def read(word: str) -> str:
        if key.pattern is None:
            return _read_plain_word(word)
        if key.pattern.fullmatch(word) is None:
            raise wrong(f"{shown(word)} is not {key.noun}", key.advice)
        return word

    return read


def _read_host(host: str) -> str:
    if _HOST.fullmatch(_read_plain_word(host)) is None:
        raise wrong(f"{shown(host)} is not the name of a host", "write a Host of your ~/.ssh/config, or USER@HOST")
    return host


def _read_word(word: str) -> str:
    if "\0" in word:
        raise wrong(f"{shown(word)} holds NUL", "take it out; no program can be given it")
    return word


def _read_shell_variable(name: str) -> str:
    if _VARIABLE.fullmatch(name) is None:
        raise wrong(
            f"{shown(name)} is not the name of a variable", "write letters, digits and '_', the first no digit"
        )
    return name


def _read_network(network: str) -> str:
    try:
        ipaddress.ip_network(network)
    except ValueError:
        raise wrong(f"{shown(network)} is not a network", _network_advice(network)) from None
    return network


def _network_advice(network: str) -> str:
    try:
        meant = ipaddress.ip_network(network, strict=False)
    except ValueError:
        return "write an address and the length of its prefix, such as 10.0.0.0/8"
    return f"write {meant}: the bits behind the prefix are 0"


def _refuse_control(text: str, what: str) -> None:
    found = CONTROL.search(text)
    if found is not None:
        raise wrong(f"{what} holds the control character U+{ord(found[0]):04X}", "take it out")


WorkDirectory = Annotated[SomeText, AfterValidator(_read_work_directory)]
ProgramDirectory = Annotated[SomeText, AfterValidator(_read_program_directory)]
PlainWord = Annotated[SomeText, AfterValidator(_read_plain_word)]
HostName = Annotated[SomeText, AfterValidator(_read_host)]
Word = Annotated[Text, AfterValidator(_read_word)]
ShellVariable = Annotated[Text, AfterValidator(_read_shell_variable)]
NetworkAddress = Annotated[SomeText, AfterValidator(_read_network)]
Words = Annotated[tuple[Word, ...], Field(max_length=BATCH_ENTRIES_MAX)]
Variables = Annotated[dict[ShellVariable, Word], Field(max_length=BATCH_ENTRIES_MAX)]


def work_directory_of(name: str) -> str:
    """Return the work directory of a site without one in its description."""
    return f"{WORK_DIRECTORIES}/{name}"


class CommonKeysText(Description):
    """The keys of sites under any batch system."""

    work_directory: WorkDirectory | None = Field(
        default=None,
        description=f"under {titles()}, as all down to partitions: a directory of its own that all its nodes "
        f"see, by default {WORK_DIRECTORIES}/SITE; '~/' in front is your home there; none of the signs "
        f"{' '.join(_NOT_IN_PATHS)} may be in it",
    )
    ssh: HostName | None = Field(
        default=None,
        description="the host of your ~/.ssh/config at which commands run; by default they run on this machine",
    )
    through: Words = Field(default=(), description="words in front of every command, such as [ip, netns, exec, NAME]")
    environment: Variables = Field(
        default={}, description="variables for every command, such as SLURM_CONF, or SGE_ROOT and SGE_CELL"
    )
    queue: PlainWord | None = Field(
        default=None,
        description="the partition or queue that components go to, or several with commas between; by default the "
        "site's own default",
    )
    account: PlainWord | None = Field(
        default=None, description="the account, or the project of Grid Engine, that components are charged to"
    )
    submit_options: Words = Field(
        default=(), description="further words for each submission, such as [--constraint=haswell]"
    )
    job_environment: Variables = Field(default={}, description="variables for the components")
    search_path: Annotated[tuple[ProgramDirectory, ...], Field(max_length=BATCH_ENTRIES_MAX)] = Field(
        default=(), description="directories there in which components find programs first, such as that of mpiexec"
    )
    claims: Claims = Field(
        default=Claims.BARRIER,
        description=f"how processors are claimed: {Claims.BARRIER} starts a component as soon as it can and lets it "
        f"wait for the others; {Claims.RESERVATION} reserves its processors for the start of the job where the "
        "operator allows it, the job has a walltime and its files are still on their way",
    )
    host: HostName | None = Field(
        default=None,
        description="the address at which other sites reach its nodes, where all of them share one; not together "
        "with network",
    )
    network: NetworkAddress | None = Field(
        default=None,
        description="the network in which other sites reach its nodes, such as 10.0.0.0/8, where each has an address "
        "there; by default they are reached by their names; not together with host",
    )

    partitions: Annotated[dict[Label, PlainWord], Field(max_length=BATCH_ENTRIES_MAX)] = Field(
        default={},
        description="partitions or queues by the names by which jobs ask for them (#SBATCH --partition): one that "
        "asks for one of them goes there and not to queue; one that asks for another goes where all go",
    )


def _titles_with(key: str) -> str:
    """Return the batch systems with this key of their own."""
    return " or ".join(each.title for each in SYSTEMS.values() if key in {own.name for own in each.keys})


if TYPE_CHECKING:
    AllKeysText = CommonKeysText
else:
    # Systems that share a key give it the same meaning.
    _OWN = {
        key.name: (
            Annotated[SomeText, AfterValidator(_own_word(key))] | None,
            Field(default=None, description=f"under {_titles_with(key.name)}: {key.description}"),
        )
        for system in SYSTEMS.values()
        for key in system.keys
    }
    AllKeysText = create_model("AllKeysText", __base__=CommonKeysText, **_OWN)


class BatchKeysText(AllKeysText):
    """How a site under a batch system is reached and used."""

    def own(self, kind: str) -> dict[str, str]:
        """Return the values of the keys that only this batch system has."""
        values = {key.name: getattr(self, key.name) for key in SYSTEMS[kind].keys}
        return {name: value for name, value in values.items() if value is not None}

    def settings(self, name: str, kind: str) -> BatchSettings | None:
        """Return the settings of a site of this kind, None without a batch system. Requires that
        ``findings`` found nothing."""
        if kind not in SYSTEMS:
            return None
        return BatchSettings(
            work_directory=self.work_directory or work_directory_of(name),
            ssh=self.ssh,
            through=self.through,
            environment=tuple(self.environment.items()),
            queue=self.queue,
            account=self.account,
            own=tuple(self.own(kind).items()),
            submit_options=self.submit_options,
            job_environment=tuple(self.job_environment.items()),
            search_path=self.search_path,
            claims=self.claims,
            host=self.host,
            network=self.network,
            partitions=tuple(self.partitions.items()),
        )

    def findings(self, kind: str) -> Iterator[tuple[str, str, str]]:
        """Yield the keys that do not match the kind of the site or each other: key, message, advice."""
        system = SYSTEMS.get(kind)
        given = [
            key
            for key in BatchKeysText.model_fields
            if key in self.model_fields_set and getattr(self, key) is not None
        ]
        if system is None:
            for key in given:
                yield (
                    key,
                    f"'{key}' is for sites under a batch system; this one is of the kind {kind}",
                    f"take it out, or write {kind_lines()} if such a system rules the site",
                )
            return
        known = {*CommonKeysText.model_fields, *(key.name for key in system.keys)}
        for key in given:
            if key not in known:
                yield (
                    key,
                    f"'{key}' is for sites under {_titles_with(key)}; this one is of the kind {kind}",
                    "take it out; what has no key of its own goes into submit_options",
                )
        yield from system.findings(self.own(kind))
        if self.host is not None and self.network is not None:
            yield (
                "network",
                "host and network are given together",
                "keep host where all nodes are reached at one address, and network where each has its own",
            )
