"""Which way files take between two sites is a matter of how the sites are described, and of nothing else."""

from __future__ import annotations

import errno
from itertools import product

import pytest

from koala.files.hosts import failure
from koala.files.transfer.route import TransferRoute, route_between
from koala.model.grid import BatchSettings, Site, SiteKind

WORK = "/work"
SITES = {
    "local": Site(name="local", processors=1, kind=SiteKind.LOCAL),
    "slurm": Site(name="slurm", processors=1, kind="slurm", batch=BatchSettings(work_directory=WORK)),
    "west": Site(name="west", processors=1, kind="slurm", batch=BatchSettings(work_directory=WORK, ssh="west")),
    "east": Site(name="east", processors=1, kind="grid_engine", batch=BatchSettings(work_directory=WORK, ssh="east")),
    "netns": Site(
        name="netns", processors=1, kind="slurm", batch=BatchSettings(work_directory=WORK, through=("ip",))
    ),
    "served": Site(name="served", processors=1, kind=SiteKind.LOCAL, file_server="ftp://a/x"),
    "serving": Site(
        name="serving",
        processors=1,
        kind="slurm",
        file_server="gsiftp://b/y",
        batch=BatchSettings(work_directory=WORK, ssh="serving"),
    ),
}
EXPECTED = {
    ("local", "local"): TransferRoute.COPY,
    ("local", "slurm"): TransferRoute.COPY,
    ("slurm", "slurm"): TransferRoute.COPY,
    ("local", "west"): TransferRoute.SSH,
    ("west", "local"): TransferRoute.SSH,
    ("west", "east"): TransferRoute.SSH,
    ("west", "west"): TransferRoute.WITHIN,
    ("netns", "netns"): TransferRoute.WITHIN,
    ("netns", "west"): TransferRoute.RELAY,
    ("local", "netns"): TransferRoute.RELAY,
    ("served", "serving"): TransferRoute.GRIDFTP,
    ("serving", "served"): TransferRoute.GRIDFTP,
    ("served", "served"): TransferRoute.COPY,
    ("serving", "serving"): TransferRoute.WITHIN,
    ("served", "local"): TransferRoute.COPY,
    ("served", "west"): TransferRoute.SSH,
    ("netns", "serving"): TransferRoute.RELAY,
}


@pytest.mark.parametrize(("pair", "way"), EXPECTED.items(), ids=["-".join(pair) for pair in EXPECTED])
def test_the_first_way_that_fits_is_taken(pair: tuple[str, str], way: TransferRoute) -> None:
    assert route_between(SITES[pair[0]], SITES[pair[1]]) is way


@pytest.mark.parametrize(("one", "other"), list(product(SITES, SITES)))
def test_there_is_a_way_between_any_two_sites_and_the_same_one_back(one: str, other: str) -> None:
    assert route_between(SITES[one], SITES[other]) is route_between(SITES[other], SITES[one])


@pytest.mark.parametrize(
    ("said", "number"),
    [
        ("dd: error writing 'part': No space left on device", errno.ENOSPC),
        ('rsync: [receiver] write failed on "/x/part": No space left on device (28)\nrsync error: x', errno.ENOSPC),
        ("500-globus_xio: System error in write: Disk quota exceeded\n500 End.", errno.EDQUOT),
        ("cat: write error: File too large", errno.EFBIG),
        ("sh: 3: cannot create part: Permission denied", errno.EACCES),
        ("mv: cannot move 'a' to 'b': Read-only file system", errno.EROFS),
        ("client_loop: send disconnect: Broken pipe", errno.EIO),
        ("", errno.EIO),
    ],
)
def test_what_programs_complain_of_is_understood(said: str, number: int) -> None:
    error = failure(1, said)
    assert error.errno == number
    assert error.strerror


def test_a_file_that_is_called_like_a_complaint_is_none() -> None:
    assert failure(1, "cat: 'No space left on device.txt': Input/output error").errno == errno.EIO
