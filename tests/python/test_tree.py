"""quabla.tree: containers, structures, paths, registered classes, and trees that are not as they should be."""

import collections
import copy
import dataclasses
import gc
import pickle
import typing
import weakref

import numpy as np
import pytest
import quabla as qb
from quabla import tree


class Point(typing.NamedTuple):
    x: object
    y: object


Pair = collections.namedtuple("Pair", "first second")


@tree.register_dataclass
@dataclasses.dataclass(frozen=True)
class Layer:
    w: object
    b: object


@tree.register_dataclass(meta_fields=("activation",))
@dataclasses.dataclass
class Network:
    layers: object
    activation: str = "tanh"

    def __post_init__(self):
        assert isinstance(self.layers, list)


class Box:
    def __init__(self, items, label):
        self.items, self.label = items, label


tree.register(Box, lambda box: (box.items, box.label), lambda label, items: Box(list(items), label))

TREES = [
    1.0,
    None,
    [],
    {},
    (),
    [1, [2, (3, None)], {"a": 4}],
    {"b": {"y": 1, "x": 2}, "a": [3]},
    Point(1, [2, 3]),
    Pair(Point(1, 2), None),
    Layer(1, {"b": 2}),
    Network([Layer(1, 2), Layer(3, 4)]),
    {2: "two", 1: "one", 10: "ten"},
    {f"key{i}": i for i in range(100)},
    list(range(200)),
]


@pytest.mark.parametrize("value", TREES, ids=lambda value: str(value)[:40])
def test_round_trip(value):
    leaves, treedef = tree.flatten(value)
    assert treedef.num_leaves == len(leaves)
    assert treedef.unflatten(leaves) == value
    assert tree.unflatten(treedef, iter(leaves)) == value
    assert type(treedef.unflatten(leaves)) is type(value)
    assert tree.leaves(value) == leaves
    assert tree.structure(value) == treedef
    assert hash(tree.structure(value)) == hash(treedef)
    assert pickle.loads(pickle.dumps(treedef)) == treedef
    assert copy.deepcopy(treedef) == treedef


def test_dict_keys_are_visited_sorted():
    leaves, treedef = tree.flatten({"c": 3, "a": 1, "b": 2, "": 0, "é": 4, "ab": 1.5})
    assert leaves == [0, 1, 1.5, 2, 3, 4]
    assert list(treedef.unflatten(leaves)) == sorted({"c", "a", "b", "", "é", "ab"})
    many = {f"{i * 7919 % 1000:03}": i * 7919 % 1000 for i in range(1000)}
    assert tree.leaves(many) == list(range(1000))
    assert tree.leaves({3: "c", 1: "a", 2: "b"}) == ["a", "b", "c"]
    assert tree.leaves({(1, "b"): 2, (0, "z"): 1}) == [1, 2]


def test_keys_that_cannot_be_sorted_are_named():
    with pytest.raises(TypeError, match=r"cannot be sorted: \['a', 1\]"):
        tree.flatten({"a": 1, 1: 2})


def test_leaves_are_the_same_objects():
    x, y = qb.array([1.0]), np.ones(3)
    leaves = tree.leaves({"x": x, "y": (y,)})
    assert leaves[0] is x
    assert leaves[1] is y


def test_only_exact_containers():
    class MyDict(dict):
        pass

    class MyList(list):
        pass

    @dataclasses.dataclass
    class Plain:
        x: int

    for leaf in [MyDict(a=1), MyList([1]), Plain(1), collections.OrderedDict(a=1), "text", 1, True, 1.5, object()]:
        assert tree.leaves([leaf]) == [leaf]


def test_structures_differ():
    trees = [
        0, None, [], (), {}, [0], (0,), {"a": 0}, {"b": 0}, {1: 0}, {True: 0}, [0, 0], [[0], 0], [0, [0]], [None],
        Point(0, 0), Pair(0, 0), (0, 0), Layer(0, 0), Network([0]), Network([0], "relu"), Network([0], 1),
        Network([0], 1.0), Network([0], True), Network([0], 0.0), Network([0], -0.0), Network([0], (1,)),
        Network([0], (1.0,)), Box([0], "a"), Box([0], "b"), Box([0, 0], "a"), Box([[0]], "a"),
    ]  # fmt: skip
    structures = [tree.structure(value) for value in trees]
    for i, a in enumerate(structures):
        for j, b in enumerate(structures):
            assert (a == b) == (i == j), (a, b)
            assert (a != b) == (i != j)
    assert len(set(structures)) == len(structures)
    assert structures[0] != 0


def test_nan_as_metadata_is_itself():
    a, b = Network([0], float("nan")), Network([0], float("nan"))
    assert tree.structure(a) == tree.structure(b)
    assert hash(tree.structure(a)) == hash(tree.structure(b))
    a, b = Network([0], ("k", (float("nan"),))), Network([0], ("k", (float("nan"),)))
    assert len({tree.structure(a), tree.structure(b)}) == 1


def test_repr():
    value = {"a": [1, None, (2,)], "b": Point(1, Layer(1, 2)), "c": Network([], "tanh"), "d": Box([1], "x")}
    assert repr(tree.structure(value)) == (
        "TreeDef({'a': [*, None, (*,)], 'b': Point(x=*, y=Layer(w=*, b=*)), 'c': Network(layers=[], activation='tanh'),"
        " 'd': Box(*, 'x')})"
    )


def test_paths():
    value = {"params": {"layers": [{"w": 1, "b": 2}, Layer(3, 4)]}, "at": Point(5, Box([6, 7], 0)), 3.5: 8}
    with pytest.raises(TypeError, match="cannot be sorted"):
        tree.flatten_with_path(value)
    del value[3.5]
    pairs, treedef = tree.flatten_with_path(value)
    assert [leaf for _, leaf in pairs] == tree.leaves(value)
    assert treedef == tree.structure(value)
    assert ["/".join(map(str, path)) for path, _ in pairs] == [
        "at/x", "at/y/0", "at/y/1", "params/layers/0/b", "params/layers/0/w", "params/layers/1/w", "params/layers/1/b",
    ]  # fmt: skip
    assert pairs[3][0] == ("params", "layers", 0, "b")
    assert tree.flatten_with_path(1.0)[0] == [((), 1.0)]


def test_map():
    a, b = {"x": 1, "y": [2, None]}, {"x": 10, "y": [20, None]}
    assert tree.map(lambda leaf: -leaf, a) == {"x": -1, "y": [-2, None]}
    assert tree.map(lambda p, q: p + q, a, b) == {"x": 11, "y": [22, None]}
    assert tree.map(lambda p, q, r: (p, q, r), [1], [2], [3]) == [(1, 2, 3)]
    # what stands in the place of a leaf is handed over whole
    assert tree.map(lambda p, q: q, {"x": 1}, {"x": None}) == {"x": None}
    assert tree.map(lambda p, q: q, {"x": 1}, {"x": [1, 2]}) == {"x": [1, 2]}
    network = Network([Layer(1, 2)])
    assert tree.map(lambda p, q: p * q, network, Network([Layer(3, 4)])) == Network([Layer(3, 8)])
    assert tree.map(lambda p, q: p * q, Box([2], "a"), Box([4], "a")).items == [8]


@pytest.mark.parametrize(
    ("first", "second", "message"),
    [
        ({"a": {"w": 1}}, {"a": [1]}, r"map: at a: expected a dict with keys \['w'\], got a list of length 1"),
        ([1, 2], [1], "map: expected a list of length 2, got a list of length 1"),
        ({"a": 1}, {"b": 1}, r"map: expected a dict with keys \['a'\], got a dict with keys \['b'\]"),
        ([[None]], [[1]], "map: at 0/0: expected None, got a int"),
        (Point(1, 2), Pair(1, 2), "map: expected a Point, got a Pair"),
        (Network([1]), Network([1], "relu"), "map: expected a Network of the same metadata, got a Network"),
        (Box([1], 1), Box([1], 2), "expected a Box of the same metadata, got a Box"),
        (Layer(1, [2]), Layer(1, 2), "map: at b: expected a list of length 1, got a int"),
    ],
)
def test_map_mismatch_names_the_path(first, second, message):
    with pytest.raises(ValueError, match=message):
        tree.map(lambda p, q: p, first, second)


def test_map_passes_errors_on():
    with pytest.raises(ZeroDivisionError):
        tree.map(lambda leaf: 1 / leaf, [1, 0, 2])


def test_wrong_number_of_leaves():
    treedef = tree.structure([1, 2])
    with pytest.raises(ValueError, match="the structure has 2 leaves, got 3"):
        treedef.unflatten([1, 2, 3])
    with pytest.raises(TypeError, match="expected a TreeDef"):
        tree.unflatten([1], [1])


def test_unflatten_calls_no_constructor():
    class Strict(typing.NamedTuple("Strict", [("x", int)])):
        def __new__(cls, x):
            assert isinstance(x, int)
            return super().__new__(cls, x)

    value = tree.map(str, Strict(1))
    assert type(value) is Strict
    assert value.x == "1"
    assert tree.structure(Network([1])).unflatten(["leaf"]) == Network(["leaf"])


def test_slots_and_plain_classes():
    @dataclasses.dataclass
    class Slotted:
        __slots__ = ("a", "b")
        a: object
        b: object

    class Plain:
        pass

    tree.register_dataclass(Slotted, ["a"], ["b"])
    tree.register_dataclass(Plain, ("x",))
    assert tree.map(lambda leaf: leaf + 1, Slotted(1, "meta")) == Slotted(2, "meta")
    plain = Plain()
    plain.x = [1, 2]
    assert tree.map(lambda leaf: leaf + 1, plain).x == [2, 3]
    del plain.x
    with pytest.raises(AttributeError, match="x"):
        tree.leaves(plain)


def test_registering_what_cannot_be():
    class Plain:
        pass

    @dataclasses.dataclass
    class Data:
        x: int
        y: int

    with pytest.raises(TypeError, match="data_fields must name"):
        tree.register_dataclass(Plain)
    with pytest.raises(ValueError, match=r"has no fields \['z'\]"):
        tree.register_dataclass(Data, meta_fields=("z",))
    with pytest.raises(ValueError, match=r"neither data nor meta: \['y'\]"):
        tree.register_dataclass(Data, ("x",))
    with pytest.raises(ValueError, match="named twice"):
        tree.register_dataclass(Data, ("x", "y"), ("y",))
    with pytest.raises(TypeError, match="field names are strings"):
        tree.register_dataclass(Plain, (1,))
    with pytest.raises(ValueError, match="registered already"):
        tree.register_dataclass(Layer)
    with pytest.raises(ValueError, match="registered already"):
        tree.register(Box, list, list)
    for cls in (dict, list, int, qb.Tensor):
        with pytest.raises(ValueError, match="cannot be registered"):
            tree.register(cls, list, list)
    with pytest.raises(TypeError, match="expected a class"):
        tree.register(3, list, list)
    with pytest.raises(TypeError, match="must be callable"):
        tree.register(Plain, 1, 2)


def test_metadata_must_hash():
    with pytest.raises(TypeError, match=r"metadata of Network must be hashable.*field activation is a list"):
        tree.flatten(Network([1], ["tanh"]))
    with pytest.raises(TypeError, match="metadata of Box must be hashable"):
        tree.flatten(Box([1], {}))


def test_flatten_function_that_misbehaves():
    class Bad:
        pass

    tree.register(Bad, lambda bad: bad.result, lambda meta, children: None)
    bad = Bad()
    for result in (None, [1], (1,), (1, 2, 3)):
        bad.result = result
        with pytest.raises(TypeError, match=r"must return \(children, metadata\)"):
            tree.flatten(bad)
    bad.result = (3, None)
    with pytest.raises(TypeError, match="not iterable"):
        tree.flatten(bad)


def test_containers_that_change_while_they_are_flattened():
    class Hostile:
        def __init__(self, action):
            self.action = action

    tree.register(Hostile, lambda hostile: (hostile.action() or [], None), lambda meta, children: None)
    items = []
    items[:] = [Hostile(items.clear), 1, 2, 3]
    with pytest.raises(RuntimeError, match="changed"):
        tree.flatten(items)
    mapping = {}
    mapping.update({i: i for i in range(1, 30)})
    mapping[0] = Hostile(mapping.clear)
    with pytest.raises(RuntimeError, match="changed"):
        tree.flatten(mapping)
    # a small dict is seen as it was at the start
    mapping.update(a=Hostile(mapping.clear), b=2)
    assert tree.leaves(mapping) == [2]


def test_depth_and_cycles():
    deep = 1.0
    for _ in range(500):
        deep = [deep]
    assert tree.leaves(deep) == [1.0]
    assert tree.structure(deep).unflatten([2.0])[0][0] is not None
    cycle = []
    cycle.append(cycle)
    with pytest.raises(RecursionError):
        tree.flatten(cycle)
    loop = {}
    loop["self"] = (loop,)
    with pytest.raises(RecursionError):
        tree.map(abs, loop)


def test_structures_hold_keys_and_let_go_of_them():
    class Key(str):
        pass

    key = Key("key")
    alive = weakref.ref(key)
    treedef = tree.structure({key: 1})
    del key
    assert alive() is not None
    del treedef
    gc.collect()
    assert alive() is None
