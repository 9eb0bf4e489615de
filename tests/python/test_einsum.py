"""einsum against NumPy: every kind of equation, eager and traced, with first and second derivatives, and the products it becomes.

einsum is linear in each operand, so its derivatives are einsums again: NumPy is their oracle, too.
"""

import itertools
import re

import numpy as np
import pytest
import quabla as qb

EXTENTS = dict(zip("abcdefghijklmnopqrstuvwxyzABXY", itertools.cycle((2, 3, 4, 2, 3)), strict=False))
ELLIPSES = ((2, 3), (3,), (2, 1), ())  # of operands 0, 1, 2, 3: they broadcast

ONE = """
a  a->a  a->  ab  ba  ab->ab  ab->ba  ab->a  ab->b  ab->  abc->cab  cba  abc->ca  abc->b  abcd->dbca  abcd->db  aB  Ba
aa  aa->a  aa->  aaa  aaa->a  aab  aba  baa  aab->ab  aba->ab  aba->b  baa->ba  baa->  aabb  aabb->ab  abab->ab  abba->ab  abba->ba  abba  abab  aabc->cb
abcab->c  aaab->ab  abaab->ba  aabbcc->abc
...  ...->...  ...a  a...  ...a->...  a...->...  a...->...a  ...ab->...ba  ...ab->...b  ab...->b...a  ...aa->...a  aa...->...  a...a->a...  a...a  ...a->a...
a->a...  a->...a
"""

TWO = """
a,a  a,a->a  a,a->  a,b  a,b->ab  a,b->ba  a,b->a  a,b->  a,ab  a,ab->ab  a,ab->ba  ab,b  ab,b->a  ab,b->b  ab,b->ab  ab,a->b  ab,ab  ab,ab->ab  ab,ab->a
ab,ab->ba  ab,ba  ab,ba->ab  ab,ba->  ab,bc  ab,bc->ac  ab,bc->ca  ab,bc->abc  ab,bc->b  ab,bc->bac  ab,bc->  ba,bc->ac  ba,cb->ac  ab,cb->ac  ab,cd->abcd
ab,cd->dbca  ab,cd->ad  ab,cd->  abc,bcd  abc,bcd->ad  abc,dcb->da  abc,cd->abd  abc,cd->dab  abc,bd->acd  abc,acd->abd  bac,bcd->bad  abc,cbd->bad
abcd,cd->ab  abcd,cdef->abef  abcd,aced->be  abc,abc->abc  abc,bca->  abc,acb->b  aab,b  aab,ab->a  aa,ab->b  aba,b->a  aa,bb  aa,bb->ab  ab,bb->a  aab,bcc->ac
aba,bcb->ac  ,a  a,  ,  ,->  a,->a  ab,->ba
...,...  ...a,...a  ...a,...a->...  ...a,a  ...a,a->...a  a...,a...  ...ab,...bc  ...ab,...bc->...ac  ...ab,...cb->...ca  ...ab,b...->a...  a...,b...->ab...
a...b,bc->a...c  ...a,...b->...ab  ...aa,...a->...  ab...,ab...->...  ab,...bc->...ac  a...,->...a
"""

MORE = """
a,a,a  a,a,a->a  a,b,c->abc  a,b,c->  a,b,c->cab  ab,bc,cd  ab,bc,cd->ad  ab,bc,cd->da  ab,bc,ca  ab,bc,cd->bc  ab,ab,ab->ab  ab,ab,ab->  a,ab,b  a,ab,b->ab
ab,a,b->ab  ab,cb,b->ac  ab,bc,b->ac  abc,cd,be->ade  abc,ad,be,cf->def  abcd,ae,bf,cg->defg  ab,bc,cd,de  ab,bc,cd,de->ae  ab,cd,ef->ace  ab,cd,ef->
ab,bc,cd,da  a,a,b,b->ab  ab,bc,cd,de,ef->af  ab,cd,bd,ca->  aa,ab,bb->b  ab,bc,,cd->ad  ,a,b->ba  a,ab,abc,abcd->d  bac,bad,bae->bcde  abx,bcx,cdx->adx
ea,fb,abcd,gc,hd->efgh  abc,bd,cd,d->a  ij,jk,kl,lm,mn->in
...a,ab,...b->...  ...ab,...bc,...cd->...ad  ...,...,...  a...,ab,b->...  ...a,...b,...c->...abc  ...a,...a,...a->...  ...ab,b,a->...  ...,...,...,...
"""

CASES = [(kind, equation) for kind, text in (("one", ONE), ("two", TWO), ("more", MORE)) for equation in text.split()]
every_equation = pytest.mark.parametrize("equation", [equation for _, equation in CASES])


def operands_of(equation, seed=0):
    """Random operands: a letter's extent is in EXTENTS, an ellipsis' axes in ELLIPSES."""
    rng = np.random.default_rng(seed)
    shapes = []
    for place, term in enumerate(equation.split("->")[0].split(",")):
        shape = []
        for item in re.findall(r"\.\.\.|[a-zA-Z]", term):
            shape += ELLIPSES[place % len(ELLIPSES)] if item == "..." else [EXTENTS[item]]
        shapes.append(tuple(shape))
    return [rng.normal(size=shape) for shape in shapes]


def tensors(arrays):
    return [qb.array(a) for a in arrays]


def close(got, expected, tolerance=1e-13):
    expected = np.asarray(expected)
    assert got.shape == expected.shape
    np.testing.assert_allclose(
        np.asarray(got), expected, rtol=tolerance, atol=tolerance * (1 + np.abs(expected).max(initial=0))
    )


def test_there_are_enough_equations():
    assert len({equation for _, equation in CASES}) == len(CASES) >= 150


@every_equation
def test_value(equation):
    operands = operands_of(equation)
    expected = np.einsum(equation, *operands)
    close(qb.einsum(equation, *tensors(operands)), expected)
    close(qb.einsum(equation, tensors(operands)), expected)
    close(qb.jit(lambda *xs: qb.einsum(equation, *xs))(*tensors(operands)), expected)


@every_equation
def test_float32_and_integers(equation):
    operands = operands_of(equation)
    single = [a.astype("float32") for a in operands]
    got = qb.einsum(equation, *(qb.array(a) for a in single))
    assert got.dtype == qb.float32
    close(got, np.einsum(equation, *operands), 2e-5)
    whole = [np.round(3 * a).astype("int64") for a in operands]
    got = qb.einsum(equation, *(qb.array(a, dtype="int64") for a in whole))
    assert got.dtype == qb.int64
    np.testing.assert_array_equal(np.asarray(got), np.einsum(equation, *whole))


def replaced(operands, **others):
    return [others.get(f"at{i}", a) for i, a in enumerate(operands)]


@every_equation
def test_first_derivatives(equation):
    """jvp along directions of all operands is the sum of the einsums with one operand replaced; the gradient agrees."""
    operands, directions = operands_of(equation), operands_of(equation, seed=1)
    value = np.einsum(equation, *operands)
    weight = np.random.default_rng(2).normal(size=value.shape)
    parts = [np.einsum(equation, *replaced(operands, **{f"at{i}": v})) for i, v in enumerate(directions)]
    _, tangent = qb.jvp(lambda *xs: qb.einsum(equation, *xs), tuple(tensors(operands)), tuple(tensors(directions)))
    close(tangent, sum(parts), 1e-12)
    nums = tuple(range(len(operands)))
    gradients = qb.grad(lambda *xs: qb.sum(weight * qb.einsum(equation, *xs)), argnums=nums)(*tensors(operands))
    for gradient, direction, part, operand in zip(gradients, directions, parts, operands, strict=True):
        assert gradient.shape == operand.shape
        close(qb.sum(gradient * direction), np.sum(weight * part), 1e-12)


@pytest.mark.parametrize("equation", [equation for _, equation in CASES if "," in equation][::3])
def test_second_derivatives(equation):
    """Along two directions: the sum of the einsums with two operands replaced, forward over reverse and reverse over reverse."""
    operands, u, v = (operands_of(equation, seed) for seed in (0, 1, 2))
    weight = np.random.default_rng(3).normal(size=np.einsum(equation, *operands).shape)
    pairs = itertools.permutations(range(len(operands)), 2)
    expected = sum(
        np.sum(weight * np.einsum(equation, *replaced(operands, **{f"at{i}": u[i], f"at{k}": v[k]}))) for i, k in pairs
    )
    nums = tuple(range(len(operands)))

    def along_u(*xs):
        gradients = qb.grad(lambda *ys: qb.sum(weight * qb.einsum(equation, *ys)), argnums=nums)(*xs)
        return sum(qb.sum(gradient * qb.array(direction)) for gradient, direction in zip(gradients, u, strict=True))

    _, forward = qb.jvp(along_u, tuple(tensors(operands)), tuple(tensors(v)))
    close(forward, expected, 1e-12)
    reverse = qb.grad(along_u, argnums=nums)(*tensors(operands))
    close(
        sum(qb.sum(gradient * qb.array(direction)) for gradient, direction in zip(reverse, v, strict=True)),
        expected,
        1e-12,
    )


@pytest.mark.parametrize("equation", [equation for _, equation in CASES][::4])
def test_vmap(equation):
    """Each operand mapped alone, along its last axis, then all of them."""
    operands = operands_of(equation)
    function = lambda *xs: qb.einsum(equation, *xs)
    for mapped in [(i,) for i in range(len(operands))] + [tuple(range(len(operands)))]:
        in_axes = tuple(a.ndim if i in mapped else None for i, a in enumerate(operands))
        batch = [np.stack([a, 2 * a, a - 1], -1) if i in mapped else a for i, a in enumerate(operands)]
        got = qb.vmap(function, in_axes=in_axes)(*tensors(batch))
        for k in range(3):
            close(got[k], np.einsum(equation, *(a[..., k] if i in mapped else a for i, a in enumerate(batch))), 1e-12)


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ab,bc->ac", [(0, 3), (3, 2)]), ("ab,bc->ac", [(2, 0), (0, 3)]), ("ab->", [(0, 3)]), ("aa->a", [(0, 0)]), ("a,a->a", [(1,), (3,)]),
        ("ab,ab->ab", [(2, 1), (1, 3)]), ("ab,bc->ac", [(2, 1), (3, 4)]), ("ab,ab->", [(1, 1), (1, 1)]), ("a...,a...->...", [(1, 2), (3, 1)]),
        ("...a,...a->...a", [(4, 1, 3), (2, 1)]), ("a,b->ab", [(0,), (3,)]), ("aab,b->a", [(1, 1, 3), (1,)]), ("a,a,a->a", [(1,), (3,), (1,)]),
    ],
)  # fmt: skip
def test_extents_of_zero_and_one(equation, shapes):
    operands = [np.random.default_rng(0).normal(size=shape) for shape in shapes]
    close(qb.einsum(equation, *tensors(operands)), np.einsum(equation, *operands))
    nums = tuple(range(len(operands)))
    gradients = qb.grad(lambda *xs: qb.sum(qb.einsum(equation, *xs)), argnums=nums)(*tensors(operands))
    for i, (gradient, operand) in enumerate(zip(gradients, operands, strict=True)):
        direction = np.ones_like(operand)
        close(qb.sum(gradient * direction), np.sum(np.einsum(equation, *replaced(operands, **{f"at{i}": direction}))))


def test_spaces_numbers_and_lists():
    a = np.arange(6.0).reshape(2, 3)
    close(qb.einsum(" i j -> j i ", qb.array(a)), a.T)
    close(qb.einsum("ij->ji", a.tolist()), a.T)
    close(qb.einsum("i->", [1.0, 2.0, 3.0]), 6.0)
    close(qb.einsum(",i->i", 2.0, qb.ones(3)), np.full(3, 2.0))
    assert qb.einsum(",i->i", 2, qb.ones(3, dtype=qb.float32)).dtype == qb.float32
    close(qb.einsum("ij,j->i", a, qb.ones(3)), a.sum(1))


# -------------------------------------------------------------------------------------------------- what it is lowered to


def lowered(equation, *shapes):
    return qb.jit(lambda *xs: qb.einsum(equation, *xs)).lower(*(qb.ones(shape) for shape in shapes)).as_text()


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("ij,jk->ik", [(2, 3), (3, 4)]), ("ij,kj->ki", [(2, 3), (4, 3)]), ("bij,bjk->bik", [(5, 2, 3), (5, 3, 4)]), ("ij,j->i", [(2, 3), (3,)]),
        ("i,i->", [(3,), (3,)]), ("aij,jk->aik", [(5, 2, 3), (3, 4)]), ("ijk,jk->i", [(2, 3, 4), (3, 4)]), ("bhqd,bhkd->bhqk", [(2, 3, 4, 5), (2, 3, 6, 5)]),
    ],
)  # fmt: skip
def test_a_product_is_one_dot(equation, shapes):
    text = lowered(equation, *shapes)
    assert text.count("= dot(") == 1
    assert not re.search(r"= (mul|broadcast|reduce_sum|reshape|slice)\(", text)


def test_a_diagonal_is_a_view():
    text = lowered("ii->i", (4, 4))
    assert "step=[5]" in text
    assert not re.search(r"= (mul|dot|select|equal)\(", text)


def test_indices_of_one_operand_are_summed_first():
    text = lowered("ab,cd->bd", (5, 2), (6, 3))
    assert text.count("= reduce_sum(") == 2
    assert text.index("reduce_sum") < text.index("= mul(")


def operations(equation, *shapes):
    """Multiplications that the lowered products take."""
    count, shape_of = 0, {}
    for line in lowered(equation, *shapes).splitlines():
        found = re.match(r"(%\d+) = (\w+)\((.*?)\)(.*) : \w+\[(.*)\]$", line)
        if found or re.match(r"(%\d+) = input", line):
            name = line.split(" = ")[0]
            shape_of[name] = [int(n) for n in re.search(r"\[([\d,]*)\]$", line).group(1).split(",") if n]
        if found and found[2] in ("dot", "mul"):
            left = found[3].split(", ")[0]
            summed = re.search(r"contract_a=\[([\d, ]*)\]", found[4])
            axes = [int(n) for n in summed.group(1).replace(" ", "").split(",") if n] if summed else []
            count += int(np.prod(shape_of[name])) * int(np.prod([shape_of[left][axis] for axis in axes]))
    return count


@pytest.mark.parametrize(
    ("equation", "shapes", "most"),
    [
        ("ij,jk,k->i", [(100, 100), (100, 100), (100,)], 2 * 100**2),
        ("ij,jk,kl->il", [(10, 1000), (1000, 10), (10, 1000)], 2 * 10 * 1000 * 10),
        ("i,ij,jk,k->", [(50,), (50, 50), (50, 50), (50,)], 2 * 50**2 + 100),
        ("ea,fb,abcd,gc,hd->efgh", [(8, 8)] * 2 + [(8,) * 4] + [(8, 8)] * 2, 4 * 8**5),
        ("ab,bc,cd,da->", [(40, 40)] * 4, 2 * 40**3 + 40**2),
        ("ij,jk,kl,lm,mn->in", [(3, 60), (60, 60), (60, 60), (60, 60), (60, 2)], 3 * 3 * 60 * 60 + 360),
    ],
)
def test_the_order_of_contractions_is_a_good_one(equation, shapes, most):
    assert operations(equation, *shapes) <= most * 1.1


def test_many_operands():
    """As many as one likes: a chain of 40 small matrices."""
    rng = np.random.default_rng(0)
    matrices = [rng.normal(size=(2, 2)) for _ in range(40)]
    letters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNO"
    equation = ",".join(letters[i : i + 2] for i in range(40)) + f"->{letters[0]}{letters[40]}"
    expected = np.linalg.multi_dot(matrices)
    close(qb.einsum(equation, *tensors(matrices)), expected, 1e-12)


# ------------------------------------------------------------------------------------------- indices as lists of integers


def sublists(equation, arrays):
    """The arguments that say the same as the equation: operands, each with a list of integers."""
    numbers = {letter: i for i, letter in enumerate("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")}
    terms, arrow, out = equation.partition("->")

    def indices(term):
        return [... if item == "..." else numbers[item] for item in re.findall(r"\.\.\.|[a-zA-Z]", term)]

    arguments = [part for a, term in zip(arrays, terms.split(","), strict=True) for part in (a, indices(term))]
    return arguments + [indices(out)] * bool(arrow)


@every_equation
def test_sublists(equation):
    arrays = operands_of(equation)
    expected = qb.einsum(equation, *tensors(arrays))
    got = qb.einsum(*sublists(equation, tensors(arrays)))
    np.testing.assert_array_equal(np.asarray(got), np.asarray(expected))
    np.testing.assert_allclose(np.asarray(got), np.einsum(*sublists(equation, arrays)), rtol=1e-12, atol=1e-12)


def test_sublists_traced_and_refused():
    a, b = qb.array([[1.0, 2.0], [3.0, 4.0]]), qb.array([1.0, 2.0])
    assert qb.jit(lambda a, b: qb.einsum(a, [0, 1], b, (1,), [0]))(a, b).tolist() == [5.0, 11.0]
    for arguments, error, message in [
        ((a, [0, 1], b), TypeError, "followed by a list of its indices; argument 2 is of type quabla.Tensor"),
        ((a, [0, 52]), ValueError, r"argument 1 is a list of indices, which are ints from 0 to 51 and \.\.\., got 52"),
        ((a, [0, "x"]), ValueError, "got 'x'"),
        ((a, b), TypeError, "argument 1 is of type quabla.Tensor"),
        ((a, [0]), ValueError, r"operand 0 has shape \(2, 2\)"),
        ((a, [0] * 2000), ValueError, "too many indices"),
    ]:
        with pytest.raises(error, match=message):
            qb.einsum(*arguments)
