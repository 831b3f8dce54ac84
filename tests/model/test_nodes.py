"""Tasks of a shape on nodes: how many fit, what is left, and that classes answer as their nodes would one by one."""

from __future__ import annotations

import random

import msgspec
import pytest

from koala.model.nodes import (
    NODE_CLASSES_MAX,
    UNTOLD,
    NodeClass,
    NodePool,
    NodeSize,
    TaskNeeds,
    TaskShape,
    meets,
    memory_text,
    node_classes,
)

GIB = 2**30


def of(count: int, size: NodeSize, *features: str) -> NodeClass:
    return NodeClass(count, size, size, features)


def test_a_place_needs_processors_memory_and_gpus_on_one_node() -> None:
    node = NodeSize(16, 64 * GIB, (("a100", 2), ("v100", 4)))
    assert node.places(TaskShape(4)) == 4
    assert node.places(TaskShape(1, 30 * GIB)) == 2
    assert node.places(TaskShape(1, 0, 1, "a100")) == 2
    assert node.places(TaskShape(1, 0, 2)) == 3  # one pair of a100, two of v100: a task has one kind
    assert node.places(TaskShape(1, 0, 3)) == 1
    assert node.places(TaskShape(32)) == 0


def test_memory_that_a_node_does_not_tell_of_is_no_memory() -> None:
    assert NodeSize(8).places(TaskShape(1, 1)) == 0
    assert NodeSize(8).places(TaskShape(1)) == 8


def test_memory_that_nobody_counts_is_there_for_every_task() -> None:
    node = NodeSize(8, 4 * GIB, counts_memory=False)
    assert node.places(TaskShape(1, 4 * GIB)) == 8
    assert node.places(TaskShape(1, 4 * GIB + 1)) == 0
    assert node.without(TaskShape(2, 3 * GIB), 3) == NodeSize(2, 4 * GIB, counts_memory=False)
    assert node.minus(NodeSize(2, GIB)).plus(NodeSize(1, GIB)) == NodeSize(7, 4 * GIB, counts_memory=False)
    assert NodeSize(8, counts_memory=False).places(TaskShape(1, 400 * GIB)) == 8


@pytest.mark.parametrize(
    ("constraint", "features", "met"),
    [("", (), True), ("a", ("a", "b"), True), ("a&c", ("a", "b"), False), ("c|b", ("b",), True), ("c|d", (), False)],
)
def test_a_constraint_names_features_that_all_or_one_must_be_there(
    constraint: str, features: tuple[str, ...], met: bool
) -> None:
    assert meets(constraint, features) is met


def test_tasks_without_gpus_keep_off_nodes_with_gpus_while_there_are_others() -> None:
    pool = NodePool.free([of(1, NodeSize(8, UNTOLD, (("a100", 2),))), of(1, NodeSize(8))])
    pool.take(TaskShape(), 8)
    assert pool.places(TaskShape(4, 0, 1)) == 2


def test_a_task_of_much_memory_leaves_the_wide_node_with_little_to_tasks_of_many_processors() -> None:
    wide = NodeSize(8, 8 * GIB, (("a100", 4),))
    narrow = NodeSize(2, 64 * GIB, (("a100", 4),))
    pool = NodePool.free([of(1, wide), of(2, narrow)])
    pool.take(TaskShape(1, 8 * GIB, 1, "a100"), 1)
    assert pool.places(TaskShape(4, GIB)) == 2


def test_what_finds_no_room_is_told_and_the_rest_has_it() -> None:
    pool = NodePool.free([of(3, NodeSize(4))])
    assert pool.take(TaskShape(3), 5) == 2
    assert pool.places(TaskShape(1)) == 3


def test_a_hundred_thousand_nodes_cost_what_their_classes_cost() -> None:
    pool = NodePool.free([of(100_000, NodeSize(64, 256 * GIB, (("a100", 4),)))])
    pool.take(TaskShape(16, 64 * GIB, 1, "a100"), 250_001)
    assert len(list(pool)) == 3
    assert pool.places(TaskShape(16, 64 * GIB, 1)) == 400_000 - 250_001


@pytest.mark.parametrize("seed", range(20))
def test_classes_answer_as_their_nodes_one_by_one(seed: int) -> None:
    """What is taken never exceeds what a node has, and as many tasks fit as nodes one by one have room for."""
    rng = random.Random(seed)
    sizes = [
        NodeSize(rng.choice((2, 4, 8)), rng.choice((UNTOLD, 8, 32)), ((rng.choice("ab"), rng.randint(0, 3)),))
        for _ in range(12)
    ]
    classes = node_classes((size, size, ("x",) if index % 3 else ()) for index, size in enumerate(sizes))
    pool, held = NodePool.free(classes), 0
    for _ in range(12):
        shape = TaskShape(
            rng.randint(1, 3),
            rng.choice((0, 4)),
            rng.choice((0, 1, 2)),
            rng.choice(("", "a")),
            rng.choice(("", "x", "x|y")),
        )
        places = sum(
            count * size.places(shape) for size, features, count in pool if meets(shape.constraint, features)
        )
        assert pool.places(shape) == places
        wanted = rng.randint(1, 6)
        assert pool.take(shape, wanted) == max(0, wanted - places)
        held += min(wanted, places) * shape.processors
        assert sum(count for _, _, count in pool) == len(sizes)
        assert sum(count * size.processors for size, _, count in pool) + held == sum(
            size.processors for size in sizes
        )
        for size, _, _ in pool:
            assert size.processors >= 0
            assert size.memory_bytes >= UNTOLD
            assert all(count >= 0 for _, count in size.gpus)


def test_more_classes_than_are_told_are_told_as_less_than_they_have() -> None:
    whole = NodeSize(64, 512 * GIB, (("a100", 4),))
    nodes = [(whole, NodeSize(n % 64 + 1, n * GIB + 7, (("a100", n % 5),)), ()) for n in range(400)]
    classes = node_classes(nodes)
    assert len(classes) <= NODE_CLASSES_MAX
    assert sum(each.count for each in classes) == 400
    shape = TaskShape(1, GIB)
    assert NodePool.free(classes).places(shape) <= sum(free.places(shape) for _, free, _ in nodes)


def test_a_class_turns_into_json_and_back() -> None:
    node = NodeClass(3, NodeSize(4, 5, (("a", 1),)), NodeSize(1), ("f",))
    assert msgspec.json.decode(msgspec.json.encode(node), type=NodeClass) == node


@pytest.mark.parametrize(
    ("needs", "field"),
    [
        (TaskNeeds(memory_bytes=-1), "memory"),
        (TaskNeeds(gpus=5_000), "gpus"),
        (TaskNeeds(gpu="a100"), "gpu"),
        (TaskNeeds(gpus=1, gpu="a 100"), "gpu"),
        (TaskNeeds(constraint="a&b|c"), "constraint"),
        (TaskNeeds(constraint="a" * 256), "constraint"),
    ],
)
def test_needs_that_make_no_sense_name_the_field(needs: TaskNeeds, field: str) -> None:
    problem = needs.problem()
    assert problem is not None
    assert problem[0] == field


def test_shapes_and_sizes_in_words() -> None:
    assert str(TaskShape(4, 16 * GIB, 1, "a100")) == "4 processors, 16 GiB and 1 a100"
    assert str(TaskShape(1, 0, 2, "", "big")) == "1 processor and 2 GPUs (big)"
    assert [memory_text(size) for size in (17, 1024, 3 * 2**20, 1536 * 2**20)] == [
        "17 B",
        "1 KiB",
        "3 MiB",
        "1.5 GiB",
    ]
