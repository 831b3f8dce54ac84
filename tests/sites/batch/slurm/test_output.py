"""What Slurm prints is read as it is meant, of several versions; and of anything else nothing is concluded."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from koala.model.grid import BatchSettings
from koala.model.nodes import NodeSize
from koala.sites.batch.slurm.states import end_of, exit_code, state_of
from koala.sites.batch.slurm.system import SlurmSystem
from koala.sites.batch.system import BatchEnd, BatchJob, BatchListing, BatchOutputError, BatchState, EndKind
from tests.support.paths import RECORDED


def recorded(name: str) -> str:
    """What is below the first line, which says where it comes from."""
    return (RECORDED / name).read_text().partition("\n")[2]


def system(queue: str | None = None) -> SlurmSystem:
    return SlurmSystem(BatchSettings(work_directory="/w", queue=queue))


def states(listing: BatchListing) -> dict[str, BatchState]:
    return {job.token.rpartition("-")[0]: job.state for job in listing.jobs}


def test_an_idle_cluster() -> None:
    listing = system().parse_listing(recorded("slurm_22.05_idle.txt"))
    assert (listing.processors, listing.others, listing.job_limit_s) == (8, 0, None)


def test_a_busy_cluster() -> None:
    listing = system().parse_listing(recorded("slurm_22.05_busy.txt"))
    assert states(listing) == {
        "1.1": BatchState.OVER,
        "1.2": BatchState.OVER,
        "1.3": BatchState.OVER,
        "3.4": BatchState.OVER,
        "3.1": BatchState.PENDING,
        "3.3": BatchState.PENDING,
        "3.2": BatchState.HELD,
        "2.1": BatchState.RUNNING,
    }
    ends = {job.token[:3]: job.end.kind for job in listing.jobs if job.end is not None}
    own, cancelled = EndKind.ITSELF, EndKind.CANCELLED
    assert ends == {"1.1": own, "1.2": own, "1.3": own, "3.4": cancelled}
    job = next(job for job in listing.jobs if job.token.startswith("2.1"))
    assert (job.id, job.processors, job.submitted) == ("22", 3, "2026-11-15T12:23:01")
    # Others have 3 of 8, and two are idle; those who wait will take these, and what we have when it comes free.
    assert (listing.processors, listing.others) == (8, 8)


def test_a_partition_that_is_not_there_is_told_with_what_to_do() -> None:
    printed = recorded("slurm_22.05_draining.txt")
    assert system("main").parse_listing(printed).missing == ""
    assert system().parse_listing(printed).missing == ""
    missing = system("main,nowhere").parse_listing(printed).missing
    assert missing.startswith("there is no partition nowhere with nodes; correct 'queue: ...' in the grid file")


def test_a_draining_node_has_only_what_is_in_use() -> None:
    listing = system("main").parse_listing(recorded("slurm_22.05_draining.txt"))
    assert listing.processors == 6


def test_a_listing_of_an_old_version() -> None:
    listing = system().parse_listing(recorded("slurm_17.11_listing.txt"))
    # 16 + 16 + 16 that sleep + 6 in use on a node that drains; those of a node that does not answer are not counted.
    assert listing.processors == 54
    # 26 in use of which 16 are ours; 4 + 2 + 3 wait, and of arrays 2 and 4 at a time, and 2 of our own user.
    assert listing.others == 10 + 4 + 2 + 3 + 2 + 4 + 2
    assert listing.job_limit_s == 2 * 86_400
    assert states(listing) == {
        "5.1": BatchState.RUNNING,
        "5.2": BatchState.ENDING,
        "5.3": BatchState.RUNNING,
        "5.4": BatchState.RUNNING,
        "5.5": BatchState.OVER,
        "5.6": BatchState.OVER,
        "5.7": BatchState.OVER,
        "5.8": BatchState.PENDING,
        "5.9": BatchState.OVER,
        "5.10": BatchState.HELD,
        "5.11": BatchState.HELD,
        "6.1": BatchState.PENDING,
    }
    ends = {job.token.rpartition("-")[0]: job.end for job in listing.jobs if job.end is not None}
    assert ends["5.5"] == BatchEnd(kind=EndKind.TIME_LIMIT, reason="TIMEOUT (TimeLimit)")
    assert ends["5.6"] == BatchEnd(kind=EndKind.SITE, reason="NODE_FAIL (NodeDown)")
    assert ends["5.7"].kind is EndKind.PREEMPTED
    assert ends["5.8"] == BatchEnd(kind=EndKind.UNSUITABLE, reason="PartitionTimeLimit")
    assert ends["5.9"].kind is EndKind.SITE
    assert system("debug").parse_listing(recorded("slurm_17.11_listing.txt")).job_limit_s == 1_800


def test_a_listing_of_a_new_version() -> None:
    listing = system().parse_listing(recorded("slurm_24.05_listing.txt"))
    assert listing.processors == 1_500 + 8 * 32
    # 1512 are in use, 12 of them ours; reserved, under maintenance and blocked are 3 x 32; planned are 56, more than
    # the 40 that wait.
    assert listing.others == 1_500 + 96 + 56
    assert states(listing)["7.5"] is BatchState.RUNNING, "a state that nobody knows is no end"
    assert states(listing)["7.6"] is BatchState.HELD
    assert states(listing)["7.7"] is BatchState.PENDING


N1 = "node NodeName=n1 RealMemory=4000 AllocMem=1000 CPUAlloc=3"
MIB = 2**20


def listed(*waiting: str, jobs: str = "", quota: str = "", node: str = "mixed|6/10/0/16") -> BatchListing:
    """A cluster of one node, with jobs that wait and jobs of ours."""
    return system().parse_listing(
        f"koala nodes\nn1|{node}|main*|up|infinite\nkoala waiting\n"
        + "\n".join(waiting)
        + f"\nkoala quota\n{quota}koala jobs\n{jobs}"
    )


def test_nodes_that_answer_are_named_with_all_that_they_have() -> None:
    nodes = "n1|mixed|3/1/0/4|main*|up|infinite|4000|fast\nn2|down*|0/0/4/4|main*|up|infinite|4000|(null)\n"
    printed = f"koala nodes\n{nodes}koala waiting\nkoala quota\nkoala resources\nkoala jobs\n"
    (named,) = system().parse_listing(printed).named
    assert (named.name, named.whole.processors, named.features) == ("n1", 4, ("fast",))


def test_where_memory_is_not_shared_out_nodes_tell_how_much_they_have_and_nobody_takes_any() -> None:
    nodes = "n1|mixed|3/1/0/4|main*|up|infinite|4000|fast,big\nn2|idle|0/4/0/4|main*|up|infinite|8000|(null)\n"
    printed = f"koala nodes\n{nodes}koala waiting\nkoala quota\nkoala resources\nkoala jobs\n"
    small, large = system().parse_listing(printed).nodes
    assert small.whole == NodeSize(4, 4000 * MIB, counts_memory=False)
    assert small.free == small.whole._replace(processors=1)
    assert small.features == ("big", "fast")
    assert (large.free, large.features) == (NodeSize(4, 8000 * MIB, counts_memory=False), ())
    counted = f"resources\nuser me\nconfiguration SelectTypeParameters=CR_CPU_MEMORY\n{N1}\n"
    shared = printed.replace("resources\n", counted)
    assert system().parse_listing(shared).nodes[0].free == NodeSize(1, 3000 * MIB)


@pytest.mark.parametrize(
    ("waiting", "taken"),
    [
        (["7|16|main|Resources"], 0),  # no room: it would make the site look full for as long as it waits
        (["7|16|main|Resources", "8|4|main|Priority"], 4),
        (["7|8|main|None", "8|4|main|Priority", "9|2|main|Priority"], 10),
        (["7_[1-900]|3|main|Priority"], 9),
        (["7+0|8|main|Resources", "7+1|8|main|Resources"], 0),  # its parts start together
        (["7|0|main|Resources"], 0),
        (["7|4|main|AssocGrpCpuLimit", "8|4|main|Dependency", "9|4|main|Licenses"], 0),
    ],
)
def test_what_waits_ahead_takes_idle_processors_only_where_it_has_room(waiting: list[str], taken: int) -> None:
    assert listed(*waiting).others == 6 + taken


def test_jobs_of_others_that_run_tell_when_they_end() -> None:
    listing = listed(
        "7|2|main|PENDING|1900000300|Resources",
        "8|3|main|RUNNING|1900000000|None",
        "9_4|1|main|COMPLETING|1899999000|None",
        "10|1|main|RUNNING|NONE|None",  # nothing limits it
        "11|1|main|RUNNING|2030-03-17T17:46:40|None",  # of which time zone nobody knows
        "12|4|other|RUNNING|1900000000|None",
        "13|1|main|RUNNING|1900000000|None",
        jobs="job 13|RUNNING|1|main|t|(null)|(null)|None|koala-1.1-ab\n",
    )
    assert listing.releases == ((1_900_000_000.0, 3), (1_899_999_000.0, 1))
    assert listing.others == 5 + 2, "what runs takes none of the idle ones, what waits does"


def test_a_running_job_that_makes_no_sense_is_an_error() -> None:
    for line in ("8|3|main|RUNNING|1900000000", "x|3|main|RUNNING|1900000000|None", "8|3|main|?|1900000000|None"):
        with pytest.raises(BatchOutputError):
            listed(line)


def test_what_waits_ahead_takes_what_we_have_when_it_comes_free_if_that_makes_room() -> None:
    ours = "job 7|RUNNING|4|main|t|(null)|(null)|None|koala-1.1-ab\n"
    assert listed("8|12|main|Resources", jobs=ours).others == 2 + 12
    assert listed("8|15|main|Resources", jobs=ours).others == 2


def test_a_job_that_waits_takes_first_what_slurm_keeps_for_it() -> None:
    assert listed("7|16|main|Resources", node="mixed-|6/10/0/16").others == 16
    assert listed("7|16|main|Resources", node="planned|0/16/0/16").others == 16


def test_a_limit_of_the_account_that_one_of_ours_waits_for_leaves_us_no_idle_processors() -> None:
    ours = "job 7|RUNNING|2|main|t|a|q|None|koala-1.1-ab\njob 8|PENDING|2|main|t|a|q|{}|koala-1.2-ab\n"
    assert listed(jobs=ours.format("Priority")).others == 4
    for reason in (
        "QOSMaxCpuPerUserLimit",
        "AssocGrpCpuLimit",
        "AssocGrpNodeLimit",
        "QOSGrpJobsLimit",
        "MaxCpuPerAccount",
        "AssocGrpMemRunMinutes",
    ):
        listing = listed(jobs=ours.format(reason))
        assert (listing.others, listing.jobs[1].end) == (14, None)
        elsewhere = ours.format(reason).replace("PENDING|2|main", "PENDING|2|apart")
        assert listed(jobs=elsewhere).others == 4
    for reason in (
        "AssocMaxCpuPerJobLimit",
        "QOSMaxWallDurationPerJobLimit",
        "QOSMaxNodePerJobLimit",
        "QOSMinCpuNotSatisfied",
    ):
        listing = listed(jobs=ours.format(reason))
        assert (listing.others, listing.jobs[1].end) == (4, BatchEnd(kind=EndKind.UNSUITABLE, reason=reason))
    for reason in ("InvalidAccount", "QOSNotAllowed", "ReservationDeleted"):
        assert listed(jobs=ours.format(reason)).jobs[1].end == BatchEnd(kind=EndKind.SITE, reason=reason)


def test_a_job_in_another_partition_holds_nothing_of_this_one() -> None:
    """Another site of the same user on the same cluster."""
    listing = listed(
        jobs="job 7|RUNNING|4|apart|t|a|q|None|koala-1.1-ab\njob 8|PENDING|4|apart,main|t|a|q|None|koala-1.2-ab\n"
    )
    assert [job.processors for job in listing.jobs] == [0, 4]
    assert (listing.processors, listing.others) == (16, 6)


def test_a_name_with_newlines_neither_blinds_nor_deceives() -> None:
    listing = system().parse_listing(recorded("slurm_22.05_newlines.txt"))
    assert states(listing) == {"1.1": BatchState.RUNNING}
    assert (listing.processors, listing.others) == (8, 2), "for the one that waits there is no room"


def job(number: str, token: str, submitted: str = "2024-09-01T10:00:00") -> BatchJob:
    return BatchJob(id=number, token=token, state=BatchState.OVER, submitted=submitted)


def test_the_history_of_real_jobs() -> None:
    printed = recorded("slurm_22.05_history.txt")
    jobs = [job(str(number), f"{token}-ab12cd34", "") for number, token in ((19, "1.1"), (20, "1.2"), (21, "1.3"))]
    waiting, unknown = job("33", "3.1-ab12cd34", ""), job("99999", "9.9-ab12cd34", "")
    told = system().parse_history(printed, [*jobs, waiting, unknown])
    assert {number: end.exit_code for number, end in told.items()} == {"19": 3, "20": 137, "21": 0}


def test_the_accounts_of_real_jobs_that_the_controller_forgot() -> None:
    """Their numbers were given again: 14 to 16 are forgotten once more, of 17 to 21 the controller tells others."""
    printed = recorded("slurm_22.05_accounted.txt")
    tokens = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "2.4", "2.5", "2.6", "3.1", "4.1", "4.2", "4.3"]
    names = dict(enumerate(tokens, 14))
    jobs = [job(str(number), f"{token}-ab12cd34", "") for number, token in {**names, 99999: "9.9"}.items()]
    own, cancelled, site = EndKind.ITSELF, EndKind.CANCELLED, EndKind.SITE
    assert system().parse_history(printed, jobs) == {
        "14": BatchEnd(kind=own, exit_code=3),
        "15": BatchEnd(kind=own, exit_code=137),
        "16": BatchEnd(kind=own, exit_code=0),
        "17": BatchEnd(kind=cancelled, reason="CANCELLED by 65534"),
        "18": BatchEnd(kind=cancelled, reason="CANCELLED by 0"),
        "19": BatchEnd(kind=site, reason="NODE_FAIL"),
        "20": BatchEnd(kind=site, reason="NODE_FAIL"),
        "21": BatchEnd(kind=own, exit_code=137),
        "22": BatchEnd(kind=cancelled, reason="CANCELLED by 65534"),
        "23": BatchEnd(kind=cancelled, reason="CANCELLED by 0"),  # after it was put back
        "24": BatchEnd(kind=own, exit_code=0),
        "25": BatchEnd(kind=EndKind.TIME_LIMIT, reason="TIMEOUT"),
        "26": BatchEnd(kind=EndKind.PREEMPTED, reason="PREEMPTED"),
    }
    later = [job("14", "9.1-ab12cd34", "2026-11-15T15:22:28"), job("19", "1.1-ab12cd34", "2026-11-15T15:31:58")]
    assert system().parse_history(printed, later) == {
        "14": BatchEnd(kind=own, exit_code=0),
        "19": BatchEnd(kind=cancelled, exit_code=143, reason="CANCELLED"),
    }


def test_of_a_job_that_was_put_back_the_run_counts_that_was_the_components() -> None:
    """The script lets no second one go on."""
    put_back = "koala sacct\n7|koala-1.1-ab|REQUEUED|0:0|t1\n7|koala-1.1-ab|{}|t2\n"
    mine = job("7", "1.1-ab", "t1")
    again = system().parse_history(put_back.format("FAILED|75:0"), [mine])
    assert again == {"7": BatchEnd(kind=EndKind.SITE, reason="REQUEUED")}
    assert system().parse_history(put_back.format("TIMEOUT|0:0"), [mine])["7"].kind is EndKind.TIME_LIMIT
    assert system().parse_history(put_back.format("RUNNING|0:0"), [mine]) == {}
    assert system().parse_history(put_back.format("FAILED|75:0"), [job("7", "1.1-ab", "t0")]) == {}


def test_a_job_whose_start_the_database_never_heard_of_is_known_by_its_time_alone() -> None:
    printed = "koala sacct\n7|allocation|NODE_FAIL|0:0|t1\n"
    assert set(system().parse_history(printed, [job("7", "1.1-ab", "t1")])) == {"7"}
    assert system().parse_history(printed, [job("7", "1.1-ab", "t2")]) == {}
    assert system().parse_history(printed, [job("7", "1.1-ab", "")]) == {}


def test_history_tells_a_job_from_another_that_has_its_number() -> None:
    jobs = [job(f"90001{number}", f"8.{number + 1}-8899aabb") for number in range(5)]
    told = system().parse_history(recorded("slurm_24.05_history.txt"), jobs)
    assert told == {
        "900010": BatchEnd(kind=EndKind.ITSELF, exit_code=137, reason="RaisedSignal:9(Killed)"),
        "900012": BatchEnd(kind=EndKind.CANCELLED, exit_code=143, reason="CANCELLED by 1001"),
        "900014": BatchEnd(kind=EndKind.TIME_LIMIT, exit_code=143, reason="TIMEOUT"),
    }


def test_another_job_with_newlines_in_its_name_does_not_hide_how_ours_ended() -> None:
    """It may have been given the same number."""
    printed = (
        "JobId=7 JobName=x\ny UserId=bob(1) JobState=RUNNING\n"
        "JobId=8 JobName=koala-1.2-ab UserId=me(1) JobState=FAILED ExitCode=3:0\n"
        "koala sacct\n7|x\ny|COMPLETED|0:0|then\n7|koala-1.1-ab|TIMEOUT|0:15|before\n"
    )
    told = system().parse_history(printed, [job("7", "1.1-ab", ""), job("8", "1.2-ab", "")])
    assert {number: end.kind for number, end in told.items()} == {"7": EndKind.TIME_LIMIT, "8": EndKind.ITSELF}


@pytest.mark.parametrize(
    ("text", "code"), [("0:0", 0), ("3:0", 3), ("0:9", 137), ("768", 3), ("9", 137), ("0", 0), ("0:125", 253)]
)
def test_exit_codes_in_both_forms(text: str, code: int) -> None:
    assert exit_code(text) == code


def test_no_word_that_could_be_an_end_is_guessed() -> None:
    assert state_of("NEVER_HEARD_OF", "") is BatchState.RUNNING
    with pytest.raises(BatchOutputError):
        end_of("NEVER_HEARD_OF", "")


# --------------------------------------------------------------------------------------------------- garbage

FIELDS = st.sampled_from(
    ["n1", "idle", "0/4/0/4", "main*", "up", "infinite", "1", "PENDING", "", "x", "1_[2", "٣", "9" * 30]
)
LINES = st.one_of(
    st.lists(FIELDS, max_size=8).map("|".join),
    st.sampled_from(
        [
            "koala nodes",
            "koala waiting",
            "koala quota",
            "koala resources",
            "configuration SelectTypeParameters=CR_CPU_MEMORY",
            "node NodeName=n1 RealMemory=9 AllocMem=99 ThreadsPerCore=0",
            "koala jobs",
            "koala sacct",
            "job 1|PENDING|1|main|t|(null)|(null)|None|koala-1",
        ]
    ),
    st.text(max_size=60),
)


@given(st.lists(LINES, max_size=12).map("\n".join))
def test_garbage_is_a_listing_or_an_error_of_its_own(printed: str) -> None:
    try:
        listing = system().parse_listing(printed)
    except BatchOutputError:
        return
    assert 0 <= listing.others <= listing.processors


@given(st.integers(0, 2_000), st.integers(0, 2_000), st.text(max_size=3))
def test_a_real_listing_that_is_cut_or_altered_is_a_listing_or_an_error_of_its_own(
    begin: int, end: int, instead: str
) -> None:
    printed = recorded("slurm_22.05_busy.txt")
    try:
        listing = system().parse_listing(printed[:begin] + instead + printed[end:])
    except BatchOutputError:
        return
    assert 0 <= listing.others <= listing.processors


@given(st.one_of(st.text(max_size=200), st.lists(LINES, max_size=6).map("\n".join), st.integers(0, 3_000)))
def test_garbage_is_a_history_or_an_error_of_its_own(printed: str | int) -> None:
    if isinstance(printed, int):
        printed = recorded("slurm_24.05_history.txt")[:printed]
    try:
        told = system().parse_history(printed, [job("900010", "8.1-8899aabb")])
    except BatchOutputError:
        return
    assert set(told) <= {"900010"}


@given(st.text(max_size=100))
def test_garbage_is_no_answer_to_a_submission(printed: str) -> None:
    try:
        number = system().parse_submitted(printed)
    except BatchOutputError:
        return
    assert number.isascii()
    assert number.isdigit()
