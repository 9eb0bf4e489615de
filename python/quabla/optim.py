"""First-order optimizers as pure functions of pytrees.

An optimizer is a rule from (parameters, gradients, state) to (parameters, state). `update` is a compiled function: on
arrays it
is one fused program for the whole tree, inside a trace it becomes part of it. Parameters keep their dtype; the moments
of
float32 parameters are kept in float64.
"""

from collections import namedtuple

from . import _core, tree
from .transforms import jit

__all__ = ["SGD", "Adam", "AdamState", "AdamW", "SGDState", "clip_by_global_norm"]


def _check(name, value, valid, expected):
    if not valid:
        raise ValueError(f"{name} must be {expected}, got {value!r}")


def _check_tree(params, grads):
    """Gradients must mirror the parameters: structure, shape and dtype of every leaf."""
    paths, structure = tree.flatten_with_path(params)
    leaves = tree.leaves(grads)
    if tree.structure(grads) != structure:
        raise TypeError(
            f"update: gradients have the structure {tree.structure(grads)}, parameters {structure}; bool and integer "
            f"leaves, "
            "which have no gradient, are no parameters: pass them beside"
        )
    for (path, param), g in zip(paths, leaves):
        where = "/".join(map(str, path)) or "the parameter"
        if isinstance(param, (bool, int, float)):
            raise TypeError(f"update: {where} is a Python number; make it an array (qb.array), so that it can change")
        if isinstance(g, (bool, int, float)):
            raise TypeError(f"update: the gradient of {where} is a Python number; make it an array (qb.array)")
        if param.dtype.kind != "f":
            raise ValueError(
                f"update: {where} is {param.dtype}, which a step would round; convert it with astype(float64)"
            )
        if g.dtype != param.dtype or g.shape != param.shape:
            raise ValueError(
                f"update: the gradient of {where} is {g.dtype} of shape {g.shape}, the parameter {param.dtype} of "
                f"shape {param.shape}"
            )


def _check_moments(params, moments):
    """What a state holds for each parameter must be of its structure and shape."""
    structure = tree.structure(params)
    if tree.structure(moments) != structure:
        raise TypeError(
            f"update: the state belongs to parameters of the structure {tree.structure(moments)}, these have "
            f"{structure}; make a state for them with init(params)"
        )
    for (path, param), moment in zip(tree.flatten_with_path(params)[0], tree.leaves(moments)):
        if moment.shape != param.shape:
            where = "/".join(map(str, path)) or "the parameter"
            raise ValueError(
                f"update: the state has shape {moment.shape} for {where}, which has shape {param.shape}; make a state "
                "for these parameters with init(params)"
            )


def clip_by_global_norm(grads, max_norm):
    """Scales all gradients together so that their Euclidean norm is at most max_norm: (clipped, norm).

    The norm neither overflows nor underflows. A norm that is not finite makes every clipped gradient NaN.
    """
    norm = _core.array(0.0)
    for g in tree.leaves(grads):
        norm = _core.hypot(norm, _core.norm(g.astype(_core.float64)))
    factor = _core.where(norm > max_norm, max_norm / _core.where(norm > 0.0, norm, 1.0), 1.0)
    factor = _core.where(_core.isfinite(norm), factor, float("nan"))
    return tree.map(lambda g: (g.astype(_core.float64) * factor).astype(g.dtype), grads), norm


class _Optimizer:
    """The common front: update(params, grads, state) -> (params, state)."""

    def __init__(self, learning_rate, clip_norm):
        if not callable(learning_rate):
            _check("learning_rate", learning_rate, learning_rate >= 0, "at least 0, or a schedule f(step)")
        _check("clip_norm", clip_norm, clip_norm is None or clip_norm > 0, "positive or None")
        self.learning_rate = learning_rate
        self.clip_norm = clip_norm
        self._update = jit(self._rule)

    def update(self, params, grads, state):
        """One step: (new parameters, new state). Pure: nothing given is changed.

        Raises:
            TypeError: another structure. ValueError: a gradient of another shape or dtype; names the leaf.
        """
        if not isinstance(state, self._State):
            raise TypeError(
                f"update: expected the {self._State.__name__} that init or update returned, got "
                f"{type(state).__name__}; the arguments are params, grads, state"
            )
        return self._update(params, grads, state)

    def __getstate__(self):  # the compiled update is made again where the optimizer is copied or unpickled
        return {name: value for name, value in vars(self).items() if name != "_update"}

    def __setstate__(self, state):
        vars(self).update(state)
        self._update = jit(self._rule)

    def _rate(self, step):
        """The learning rate after `step` completed updates."""
        return self.learning_rate(step) if callable(self.learning_rate) else self.learning_rate

    def _clipped(self, params, grads):
        _check_tree(params, grads)
        return grads if self.clip_norm is None else clip_by_global_norm(grads, self.clip_norm)[0]


def _moments(params):
    return tree.map(lambda p: _core.zeros(_core.asarray(p).shape, _core.float64), params)


class AdamState(namedtuple("AdamState", ("step", "m", "v"))):
    """Completed updates, and the decaying means of gradients (m) and of their squares (v), float64."""

    __slots__ = ()


class Adam(_Optimizer):
    """Adam (Kingma and Ba, ICLR 2015), with bias correction.

    Args:
        learning_rate: a float, or a schedule: a function of the number of completed updates.
        b1, b2: decay of the first and second moment, in [0, 1).
        eps: added to the root of the second moment.
        clip_norm: bound on the global norm of the gradients, or None.
    """

    _State = AdamState

    def __init__(self, learning_rate=1e-3, b1=0.9, b2=0.999, eps=1e-8, clip_norm=None):
        _check("b1", b1, 0 <= b1 < 1, "in [0, 1)")
        _check("b2", b2, 0 <= b2 < 1, "in [0, 1)")
        _check("eps", eps, eps >= 0, "at least 0")
        self.b1, self.b2, self.eps = b1, b2, eps
        super().__init__(learning_rate, clip_norm)

    def init(self, params):
        """The state before the first update: zero moments like the parameters."""
        return AdamState(_core.array(0, dtype=_core.int64), _moments(params), _moments(params))

    def _decay(self, param, rate):
        """What weight decay subtracts from a parameter besides the step; None for nothing."""
        return None

    def _rule(self, params, grads, state):
        grads = self._clipped(params, grads)
        _check_moments(params, state.m)
        _check_moments(params, state.v)
        rate = self._rate(state.step)
        step = state.step + 1
        count = step.astype(_core.float64)
        m_scale = 1.0 / (1.0 - self.b1**count)
        v_scale = 1.0 / (1.0 - self.b2**count)
        m = tree.map(lambda m, g: self.b1 * m + (1.0 - self.b1) * g.astype(_core.float64), state.m, grads)
        v = tree.map(lambda v, g: self.b2 * v + (1.0 - self.b2) * g.astype(_core.float64) ** 2, state.v, grads)

        def moved(p, m, v):
            change = rate * ((m * m_scale) / (_core.sqrt(v * v_scale) + self.eps))
            decay = self._decay(p.astype(_core.float64), rate)
            change = change if decay is None else change + decay
            return (p.astype(_core.float64) - change).astype(p.dtype)

        return tree.map(moved, params, m, v), AdamState(step, m, v)


class AdamW(Adam):
    """Adam with decoupled weight decay (Loshchilov and Hutter, ICLR 2019), of the parameters before the update."""

    def __init__(self, learning_rate=1e-3, b1=0.9, b2=0.999, eps=1e-8, clip_norm=None, weight_decay=1e-4):
        _check("weight_decay", weight_decay, weight_decay >= 0, "at least 0")
        self.weight_decay = weight_decay
        super().__init__(learning_rate, b1, b2, eps, clip_norm)

    def _decay(self, param, rate):
        return rate * self.weight_decay * param


class SGDState(namedtuple("SGDState", ("step", "velocity"))):
    """Completed updates, and the velocity (None without momentum), float64."""

    __slots__ = ()


class SGD(_Optimizer):
    """Stochastic gradient descent, with momentum: v = momentum v + g, and a step along v, or along g + momentum v
    (Nesterov)."""

    _State = SGDState

    def __init__(self, learning_rate=1e-2, momentum=0.0, nesterov=False, clip_norm=None):
        _check("momentum", momentum, 0 <= momentum < 1, "in [0, 1)")
        _check("nesterov", nesterov, momentum > 0 or not nesterov, "False without momentum")
        self.momentum, self.nesterov = momentum, nesterov
        super().__init__(learning_rate, clip_norm)

    def init(self, params):
        """The state before the first update."""
        return SGDState(_core.array(0, dtype=_core.int64), _moments(params) if self.momentum else None)

    def _rule(self, params, grads, state):
        grads = self._clipped(params, grads)
        rate, velocity = self._rate(state.step), None
        steps = tree.map(lambda g: g.astype(_core.float64), grads)
        if self.momentum:
            if state.velocity is None:
                raise TypeError("update: the state has no velocity, it was made without momentum; make one with init")
            _check_moments(params, state.velocity)
            velocity = tree.map(lambda v, g: self.momentum * v + g, state.velocity, steps)
            steps = tree.map(lambda v, g: g + self.momentum * v, velocity, steps) if self.nesterov else velocity
        moved = tree.map(lambda p, s: (p.astype(_core.float64) - rate * s).astype(p.dtype), params, steps)
        return moved, SGDState(state.step + 1, velocity)
