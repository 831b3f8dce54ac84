"""The render-encode pipeline of the paper on its testbed of 23 machines: Tables 1 and 2 again.

The paper states the stages, the machines with their powers, the load of 30 %, the three LANs with 1 Gbit/s between
them, and ISTI as the user's. Requirements, communication and the LANs of the machines were in figures that are lost:
they are assumed here, and the important assumptions are varied.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise
from typing import Any

from koala.mapping import Clustering, ClusterSizeError, NoPlace, cluster, map_tasks, measured
from koala.model.dendrogram import Dendrogram, Lan, Machine, Man, Wan
from koala.model.task_graph import TaskGraph
from koala.study import ClaimVerdict, Comparison, Interval, PaperClaim, above, below, judge

# Table 1, in the groups that the names suggest: workstations and two clusters.
WINES = {"rubentino": 1000, "sangiovese": 950, "verduzzo": 1000}
CLUSTER_N = {"n01": 1350, "n02": 950, "n03": 950, "n04": 950, "n05": 950, "n06": 950, "n07": 950, "n08": 950}
CLUSTER_W = {"w01": 650, "w02": 625, "w03": 700, "w04": 650, "w05": 1250, "w06": 1300, "w07": 1100, "w08": 700}
PHYSICISTS = {"fermi": 1350, "galileo": 1350, "rubbia": 1300, "segre": 1325}
LOAD = 0.3
LAN_NAMES = ("ISTI", "CNIT", "IET")
LINK_MBIT_S = 1000.0

# Assumed: the wines and the cluster n are ISTI's, the cluster w CNIT's, the physicists IET's.
ASSUMED = "wines and n | w | physicists"
MEMBERSHIPS: dict[str, tuple[dict[str, int], dict[str, int], dict[str, int]]] = {
    ASSUMED: ({**WINES, **CLUSTER_N}, CLUSTER_W, PHYSICISTS),
    "wines and n | physicists | w": ({**WINES, **CLUSTER_N}, PHYSICISTS, CLUSTER_W),
    "n | w | wines and physicists": (CLUSTER_N, CLUSTER_W, {**WINES, **PHYSICISTS}),
    "wines and physicists | n | w": ({**WINES, **PHYSICISTS}, CLUSTER_N, CLUSTER_W),
    "wines and w | n | physicists": ({**WINES, **CLUSTER_W}, CLUSTER_N, PHYSICISTS),
    "physicists and n | w | wines": ({**PHYSICISTS, **CLUSTER_N}, CLUSTER_W, WINES),
}
# Assumed: a renderer needs six times the light tasks' power, an encoder three times. Images are sixty times the
# request and fifty times a scene's script; five of them make a group, and encoding leaves a tenth.
RENDER_RCR = 6.0
ENCODE_RCR = 3.0
GROUP_RCR = 1.5
SCRIPT_RQOC = 1.2
IMAGE_RQOC = 60.0
COMPRESSED = 0.1
RENDERERS = 5
ENCODERS = 2
RENDER_RCRS = (3.0, 4.0, 5.0, 6.0, 7.0, 8.0)

CLUSTERS = (3, 5, 10)
MCRS = (50.0, 100.0, 150.0)
# Table 2: by clusters and MCR the tasks in ISTI, CNIT and IET, and the mean affinity; by clusters and MCR the
# inter-LAN communication in per cent, and by clusters that between clusters.
PAPER_TASKS: dict[tuple[int, float], tuple[int, int, int]] = {
    **{(clusters, mcr): (14, 0, 0) for clusters in CLUSTERS for mcr in (50.0, 100.0)},
    (3, 150.0): (8, 1, 5),
    (5, 150.0): (6, 1, 7),
    (10, 150.0): (9, 1, 4),
}
PAPER_AFFINITY = {
    (3, 50.0): 13.35,
    (3, 100.0): 5.63,
    (3, 150.0): 4.32,
    (5, 50.0): 13.93,
    (5, 100.0): 6.72,
    (5, 150.0): 4.48,
    (10, 50.0): 14.75,
    (10, 100.0): 7.00,
    (10, 150.0): 4.82,
}
PAPER_BETWEEN_CLUSTERS = {3: 0.12, 5: 3.98, 10: 30.27}
PAPER_BETWEEN_LANS = {3: 20.81, 5: 24.48, 10: 26.04}
# The tolerance for a mean size.
_SIZE_SLACK = 1e-9


def pipeline(mcr: float, render_rcr: float = RENDER_RCR) -> TaskGraph:
    """Return the 14 tasks: request, render (a splitter, five renderers, a joiner), group, encode (likewise, two),
    store."""
    renderers = [f"render{number}" for number in range(1, RENDERERS + 1)]
    encoders = [f"encode{number}" for number in range(1, ENCODERS + 1)]
    light = dict.fromkeys(("request", "split", "join", "deal", "gather", "store"), 1.0)
    rcr = {
        **light,
        **dict.fromkeys(renderers, render_rcr),
        "group": GROUP_RCR,
        **dict.fromkeys(encoders, ENCODE_RCR),
    }
    images = RENDERERS * IMAGE_RQOC
    edges = [("request", "split", 1.0), ("join", "group", images), ("group", "deal", images)]
    edges += [("split", renderer, SCRIPT_RQOC) for renderer in renderers]
    edges += [(renderer, "join", IMAGE_RQOC) for renderer in renderers]
    edges += [("deal", encoder, images / ENCODERS) for encoder in encoders]
    edges += [(encoder, "gather", COMPRESSED * images / ENCODERS) for encoder in encoders]
    edges += [("gather", "store", COMPRESSED * images)]
    return TaskGraph.of(rcr, edges, mcr)


def grid_of_23(membership: str = ASSUMED) -> Dendrogram:
    """Return the 23 machines in three LANs of one MAN, seen from ISTI."""
    lans = [
        Lan(
            name=name,
            machines=tuple(Machine(name=each, power=power, load=LOAD) for each, power in machines.items()),
            uplink_mbit_s=LINK_MBIT_S,
        )
        for name, machines in zip(LAN_NAMES, MEMBERSHIPS[membership], strict=True)
    ]
    man = Man(name="pisa", lans=tuple(lans), uplink_mbit_s=LINK_MBIT_S)
    return Dendrogram(wans=(Wan(name="italy", mans=(man,)),), user_lan=LAN_NAMES[0])


def run_pipeline(clustering: str) -> dict[str, Any]:
    """Return Table 2 under the assumptions, and for other assumptions if it keeps its shape."""
    rows = table(clustering, ASSUMED, RENDER_RCR)
    varied = [
        {"membership": name, "render_rcr": rcr, "shape": has_shape(table(clustering, name, rcr))}
        for name in MEMBERSHIPS
        for rcr in RENDER_RCRS
    ]
    return {"rows": rows, "varied": varied}


def table(clustering: str, membership: str, render_rcr: float) -> list[dict[str, Any]]:
    """Return the rows of Table 2: by clusters and MCR the places of the tasks, or ``failed``."""
    grid = grid_of_23(membership)
    rows: list[dict[str, Any]] = []
    for clusters in CLUSTERS:
        found = _in_clusters(pipeline(MCRS[0], render_rcr), clustering, clusters)
        for mcr in MCRS:
            graph = pipeline(mcr, render_rcr)
            answer = map_tasks(graph, found.clusters, grid)
            row: dict[str, Any] = {
                "clusters": len(found.clusters),
                "wanted": clusters,
                "mcr": mcr,
                "between_clusters": _between_clusters(graph, found),
                "failed": isinstance(answer, NoPlace),
            }
            if not isinstance(answer, NoPlace):
                counts = Counter(grid.flat.machine_lan[machine] for machine in answer.machines)
                measures = measured(answer, graph, grid)
                row["tasks"] = [counts[lan] for lan in range(len(LAN_NAMES))]
                row["affinity"] = measures.affinity_mean
                row["between_lans"] = measures.inter_lan_share
            rows.append(row)
    return rows


def _in_clusters(graph: TaskGraph, method: str, clusters: int) -> Clustering:
    """Return this many clusters, or as near as theta comes to it."""
    size = len(graph.names) / clusters
    try:
        return cluster(graph, method, cluster_size=(size - _SIZE_SLACK, size + _SIZE_SLACK))
    except ClusterSizeError as error:
        return error.nearest


def _between_clusters(graph: TaskGraph, found: Clustering) -> float:
    label = {task: number for number, tasks in enumerate(found.clusters) for task in tasks}
    whole = sum(rqoc for _, _, rqoc in graph.edges)
    return sum(rqoc for one, other, rqoc in graph.edges if label[one] != label[other]) / whole


def has_shape(rows: list[dict[str, Any]]) -> bool:
    """Return True if affinity falls with MCR, and all tasks are in the user's LAN at 50 and 100 and not at 150."""
    return judge("", "", _comparisons(rows)).verdict is ClaimVerdict.HOLDS


def _comparisons(rows: list[dict[str, Any]]) -> list[Comparison]:
    by_place = {(row["wanted"], row["mcr"]): row for row in rows}
    compared = []
    for clusters in CLUSTERS:
        at = [by_place[clusters, mcr] for mcr in MCRS]
        for row in at:
            if row["failed"]:
                what = f"{clusters} clusters, MCR {row['mcr']:g}: mappings found"
                compared.append(above(what, _exactly(0.0), unit=""))
                continue
            home = f"{clusters} clusters, MCR {row['mcr']:g}: tasks outside ISTI"
            outside = _exactly(sum(row["tasks"][1:]))
            compared.append(
                above(home, outside, 0.5, unit="") if row["mcr"] == MCRS[-1] else below(home, outside, 0.5, unit="")
            )
        for low, high in pairwise(at):
            if not low["failed"] and not high["failed"]:
                what = f"{clusters} clusters: mean affinity, MCR {high['mcr']:g} - {low['mcr']:g}"
                compared.append(below(what, _exactly(high["affinity"] - low["affinity"]), unit=""))
    return compared


def _exactly(value: float) -> Interval:
    """Return a number that does not depend on seeds."""
    return Interval(value, value, value, 1)


def shape_claim(result: dict[str, Any]) -> PaperClaim:
    """Return C27, with the results under other assumptions."""
    varied = result["varied"]
    same = [each for each in varied if each["membership"] == ASSUMED]
    kept = [f"{each['render_rcr']:g}" for each in same if each["shape"]]
    note = (
        "What renderers need and which machine is in which LAN is assumed, and was chosen by what Table 2 shows: the "
        "claim is that some such values exist, and not a test of them. With these LANs the shape is there for a "
        f"renderer's RCR of {', '.join(kept) or 'none'} among {', '.join(f'{rcr:g}' for rcr in RENDER_RCRS)}; "
        f"over all {len(MEMBERSHIPS)} ways tried to divide the machines it is there in "
        f"{sum(each['shape'] for each in varied)} of {len(varied)} cases."
    )
    text = (
        "The render-encode pipeline: affinity falls with MCR; all tasks are in the user's LAN at MCR 50 and 100, and "
        "split at 150."
    )
    return judge("C27", text, _comparisons(result["rows"]), note=note, rows=result["rows"], varied=varied)


def tables_text(result: dict[str, Any]) -> str:
    """Return Tables 1 and 2 for people, the paper's numbers beside ours."""
    lines = ["# Table 1: the testbed", "", "| LAN (assumed) | machine | MFlop/s |", "|---|---|---|"]
    for lan, machines in zip(LAN_NAMES, MEMBERSHIPS[ASSUMED], strict=True):
        lines += [f"| {lan} | {name} | {power} |" for name, power in machines.items()]
    lines += [
        "",
        "# Table 2: where the pipeline goes",
        "",
        "| clusters | MCR | in each LAN | paper | affinity | paper | between clusters | paper | inter-LAN | paper |",
        "|---|---|---|---|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        place = row["wanted"], row["mcr"]
        lans = PAPER_BETWEEN_LANS[place[0]] if place[1] == MCRS[-1] else 0.0
        ours = ("no mapping", "", "")
        if not row["failed"]:
            ours = (_counts(row["tasks"]), f"{row['affinity']:.2f}", f"{100 * row['between_lans']:.2f} %")
        lines.append(
            f"| {row['clusters']} | {row['mcr']:g} | {ours[0]} | {_counts(PAPER_TASKS[place])} | {ours[1]} | "
            f"{PAPER_AFFINITY[place]:.2f} | {100 * row['between_clusters']:.2f} % | "
            f"{PAPER_BETWEEN_CLUSTERS[place[0]]:.2f} % | {ours[2]} | {lans:.2f} % |"
        )
    return "\n".join(lines) + "\n"


def _counts(tasks: list[int] | tuple[int, ...]) -> str:
    return ", ".join(map(str, tasks))
