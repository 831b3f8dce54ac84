"""Failure traces of the archive: what is read from them, which errors they give, and which site a node stands for."""

from __future__ import annotations

from pathlib import Path

import pytest

from koala.simulator.traces import failures as failure_trace
from koala.simulator.traces.failures import FailureTrace, FailureTraceError, read_failure_trace
from koala.simulator.traces.node_mapping import NodeChange, SiteFailures
from tests.support.hand_driven import grid, site
from tests.support.trace_files import EPOCH_S, EVENT_HEADER, NODE_HEADER, event, node_line, write_lines, write_trace


def downs(trace: FailureTrace) -> dict[str, list[float]]:
    return {node.name: [time_s - EPOCH_S for time_s in node.down_s] for node in trace.nodes}


def read(folder: Path, *lines: str, name: str = "event_trace.tab") -> FailureTrace:
    return read_failure_trace(write_lines(folder / name, lines))


@pytest.mark.parametrize("suffix", ["", ".gz", ".xz"])
def test_events_are_read_plain_and_packed(tmp_path: Path, suffix: str) -> None:
    lines = (
        EVENT_HEADER,
        event(0, "G/c1/n1", 1, 0, 100),
        event(0, "G/c1/n1", 0, 100, 250),
        event(1, "G/c1/n2", 1, 0, 400),
    )
    trace = read(tmp_path, *lines, name=f"event_trace.tab{suffix}")
    assert downs(trace) == {"G/c1/n1": [100, 250], "G/c1/n2": []}
    assert (trace.events, trace.begin_s, trace.end_s) == (3, EPOCH_S, EPOCH_S + 400)
    assert [(node.cluster, node.processors) for node in trace.nodes] == [("G/c1", 1), ("G/c1", 1)]


def test_processors_and_places_come_from_the_file_of_nodes_beside_it_however_it_is_packed(tmp_path: Path) -> None:
    nodes = [NODE_HEADER, node_line(7, "n7", "G/far", cores=4, sockets=2), node_line(8, "n8", sockets="NULL")]
    write_lines(tmp_path / "x_node.tab.gz", nodes)
    events = [EVENT_HEADER, event(7, "n7", 0, 0, 10), event(8, "G/near/n8", 0, 0, 10)]
    trace = read_failure_trace(write_lines(tmp_path / "x_event_trace.tab.xz", events))
    assert [(node.name, node.cluster, node.processors) for node in trace.nodes] == [
        ("n7", "G/far", 8),
        ("G/near/n8", "G/near", 1),
    ]


def test_the_header_says_where_the_columns_are_and_without_one_the_usual_order_holds(tmp_path: Path) -> None:
    header = "# event_id event_stop_time event_start_time event_type node_name platform_id node_id"
    moved = read(tmp_path, header, "1\t30\t10\t0\tn\t5\t2", name="a.tab")
    assert list(moved.nodes[0].down_s) == [10, 30]
    assert downs(read(tmp_path, event(0, "n", 0, 1, 2), name="b.tab")) == {"n": [1, 2]}


def test_times_that_overlap_or_touch_are_one_and_empty_ones_none_whatever_component_has_them(tmp_path: Path) -> None:
    trace = read(
        tmp_path,
        event(0, "n", 0, 50, 60),
        event(0, "n", 0, 10, 20),
        event(0, "n", 0, 20, 30),
        event(0, "n", 0, 15, 18, component=1),
        event(0, "n", 0, 40, 40),
        event(0, "n", 0, 55, 70, component=1),
    )
    assert downs(trace) == {"n": [10, 30, 50, 70]}


def test_nodes_of_two_platforms_with_one_number_are_two(tmp_path: Path) -> None:
    other = event(0, "m", 0, 5, 6).split("\t")
    other[3] = "9"
    assert len(read(tmp_path, event(0, "n", 0, 1, 2), "\t".join(other)).nodes) == 2


def test_a_file_of_states_stands_for_the_events_beside_it(tmp_path: Path) -> None:
    states = write_lines(tmp_path / "x_event_state.tab", ["# event_id component_id node_id platform_id i_val"])
    with pytest.raises(FailureTraceError, match=r"no event_trace beside it; name that"):
        read_failure_trace(states)
    write_lines(tmp_path / "x_event_trace.tab.xz", [event(0, "n", 0, 1, 2)])
    assert downs(read_failure_trace(states)) == {"n": [1, 2]}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("1\t2\t3", r"line 2: 3 columns where at least 8 are wanted"),
        (event(0, "n", 2, 0, 1), r"line 2: event_type is '2'; only 0 \(unavailable\) and 1 \(available\)"),
        (event(0, "n", 0, 9, 1), r"line 2: the event ends at 1115000001, before it starts at 1115000009"),
        (event(0, "n", 0, 9, 1).replace(str(EPOCH_S + 9), "soon"), r"line 2: 'soon' is no time; write seconds"),
        (event(0, "n", 0, 9, 1).replace(str(EPOCH_S + 9), "nan"), r"line 2: 'nan' is no time"),
        ("# event_id node_id", r"line 2: the header has no column platform_id"),
    ],
)
def test_a_bad_line_is_named_with_what_is_wrong(tmp_path: Path, line: str, message: str) -> None:
    with pytest.raises(FailureTraceError, match=message) as raised:
        read(tmp_path, event(0, "n", 0, 0, 1), line)
    assert str(tmp_path / "event_trace.tab") in raised.value.for_user()


def test_a_file_without_events_is_refused(tmp_path: Path) -> None:
    with pytest.raises(FailureTraceError, match=r"it has no events; name the file event_trace\.tab"):
        read(tmp_path, EVENT_HEADER, "")


@pytest.mark.parametrize("sockets", ["0", "many", "1000001"])
def test_a_node_with_a_senseless_number_of_processors_is_refused(tmp_path: Path, sockets: str) -> None:
    write_lines(tmp_path / "node.tab", [NODE_HEADER, node_line(0, "n", sockets=sockets)])
    with pytest.raises(FailureTraceError, match=r"node\.tab, line 2: num_procs is .*NODE_PROCESSORS_MAX"):
        read(tmp_path, event(0, "n", 0, 0, 1))


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_packed_file_that_is_cut_off_or_none_at_all_is_refused(tmp_path: Path, suffix: str) -> None:
    whole = write_lines(tmp_path / f"t.tab{suffix}", [event(0, f"n{index}", 0, 0, 1) for index in range(500)])
    whole.write_bytes(whole.read_bytes()[:-40])
    with pytest.raises(FailureTraceError, match=r"cannot be unpacked"):
        read_failure_trace(whole)
    whole.write_bytes(b"nothing of the kind")
    with pytest.raises(FailureTraceError, match=r"cannot be unpacked"):
        read_failure_trace(whole)


@pytest.mark.parametrize(("limit", "value"), [("EVENTS_MAX", 2), ("NODES_MAX", 2), ("LINE_BYTES_MAX", 30)])
def test_limits_are_reached_with_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(failure_trace, limit, value)
    path = write_lines(tmp_path / "t.tab", [event(index, f"n{index}", 0, 0, 1) for index in range(3)])
    if limit == "LINE_BYTES_MAX":
        path.write_bytes(b"x" * 31)
    with pytest.raises(FailureTraceError, match=limit):
        read_failure_trace(path)


def test_progress_tells_how_much_of_the_file_is_read(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "t.tab.xz", [event(0, "n", 1, 0, 1)] * 1000)
    told: list[tuple[int, int]] = []
    read_failure_trace(path, lambda *progress: told.append(progress))
    size_bytes = path.stat().st_size
    assert told[-1] == (size_bytes, size_bytes)


# ------------------------------------------------------------------------------------ nodes onto sites


def mapped(folder: Path, names: list[str], *sites: tuple[str, int], processors: int = 2) -> dict[str, dict[str, int]]:
    trace = read_failure_trace(write_trace(folder, dict.fromkeys(names, (processors, [])), end_s=10.0))
    failures = SiteFailures(trace, grid(*(site(name, size) for name, size in sites)))
    return {name: {each.node.name: each.processors for each in nodes} for name, nodes in failures.by_site.items()}


def test_a_site_named_like_a_cluster_gets_its_nodes_and_the_others_are_filled_in_order(tmp_path: Path) -> None:
    names = ["G/x/n1", "G/x/n2", "G/delft/n1", "G/delft/n2", "G/y/n1"]
    assert mapped(tmp_path, names, ("vu", 4), ("Delft", 3), ("last", 9)) == {
        "vu": {"G/x/n1": 2, "G/x/n2": 2},
        "Delft": {"G/delft/n1": 2, "G/delft/n2": 1},
        "last": {"G/y/n1": 2},
    }


def test_a_name_may_be_a_group_of_clusters_or_a_path_and_one_that_is_not_unique_names_nothing(tmp_path: Path) -> None:
    names = ["G/s1/c1/n", "G/s1/c2/n", "G/s2/c1/n", "G/s3/c1/n"]
    assert mapped(tmp_path, names, ("s1", 9), ("s2-c1", 9), ("c1", 9)) == {
        "s1": {"G/s1/c1/n": 2, "G/s1/c2/n": 2},
        "s2-c1": {"G/s2/c1/n": 2},
        "c1": {"G/s3/c1/n": 2},
    }


def test_changes_come_in_order_of_time_and_site_and_those_of_one_moment_together(tmp_path: Path) -> None:
    nodes = {"a/1": (1, [(5.0, 20.0)]), "a/2": (1, [(5.0, 30.0)]), "b/1": (1, [(5.0, 9.0), (20.0, 40.0)])}
    trace = read_failure_trace(write_trace(tmp_path, nodes, end_s=50.0))
    both = grid(site("a", 2), site("b", 1))
    assert list(SiteFailures(trace, both).changes()) == [
        NodeChange(5.0, "a", (0, 1), ()),
        NodeChange(5.0, "b", (0,), ()),
        NodeChange(9.0, "b", (), (0,)),
        NodeChange(20.0, "a", (), (0,)),
        NodeChange(20.0, "b", (0,), ()),
        NodeChange(30.0, "a", (), (1,)),
        NodeChange(40.0, "b", (), (0,)),
    ]
    assert list(SiteFailures(trace, both, from_s=10.0).changes()) == [
        NodeChange(0.0, "a", (0, 1), ()),
        NodeChange(10.0, "a", (), (0,)),
        NodeChange(10.0, "b", (0,), ()),
        NodeChange(20.0, "a", (), (1,)),
        NodeChange(30.0, "b", (), (0,)),
    ]
