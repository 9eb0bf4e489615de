"""The libraries that are compared, each behind the same few names, so that a workload is written once where it can be.

A peer is loaded in a process of its own (workers.py), never in the one that runs the suite. What is not defined here is
found in the library itself: `lib.sin` is quabla.sin, jax.numpy.sin or torch.sin. Where a library has a better idiom for
a workload than the common one, the row gives that peer a function of its own.
"""

import importlib
import logging
import os
import tempfile
import warnings

from timing import Call


class Peer:
    """A library: where its names are found, how it takes arrays, compiles, and is waited for."""

    name = ""
    module = ""  # what must be importable for the peer to take part
    distributions: tuple[str, ...] = ()  # whose versions are reported
    compiles = True

    def load(self) -> None:
        self.modules = (importlib.import_module(self.module),)
        self.warm_up()

    def warm_up(self) -> None:
        """Starts what the library starts at its first use (threads, its compiler), which no row should pay for."""

    def unload(self) -> None:
        """Removes what the library has left on disk."""

    def __getattr__(self, name):
        if name == "modules":
            raise AttributeError(name)
        for module in self.modules:
            if hasattr(module, name):
                return getattr(module, name)
        raise AttributeError(f"{self.name} has no {name}")

    def put(self, tree):
        """A tree of NumPy arrays as one of the library's."""
        if isinstance(tree, dict):
            return {key: self.put(part) for key, part in tree.items()}
        if isinstance(tree, (list, tuple)):
            return type(tree)(self.put(part) for part in tree)
        return self.array(tree)

    def call(self, function, *arguments) -> Call:
        """The call of a function on arrays, until its result is there."""
        names = [f"a{i}" for i in range(len(arguments))]
        return Call(self.statement.format(f"f({', '.join(names)})"), f=function, **dict(zip(names, arguments)))

    statement = "{}"


class Quabla(Peer):
    name, module, distributions = "quabla", "quabla", ()

    def array(self, values):
        (qb,) = self.modules
        return qb.array(values, dtype=qb.int64) if values.dtype.kind == "i" else qb.array(values)

    def warm_up(self):
        self.jit(self.grad(lambda x: self.sum(self.sin(x))))(self.ones(4))


class Jax(Peer):
    """JAX with 64-bit numbers on; a call ends when its result is there (block_until_ready)."""

    name, module, distributions = "jax", "jax", ("jax", "jaxlib")
    statement = "wait({})"

    def load(self):
        import jax

        jax.config.update("jax_enable_x64", True)
        self.modules = (jax.numpy, jax, jax.lax, jax.nn)
        self.wait = jax.block_until_ready
        self.warm_up()

    def array(self, values):
        return self.wait(self.modules[0].array(values))  # its copy holds on to the original until it is made

    def call(self, function, *arguments):
        call = super().call(function, *arguments)
        call.names["wait"] = self.wait
        return call

    def warm_up(self):
        self.wait(self.jit(self.grad(lambda x: self.sum(self.sin(x))))(self.ones(4)))

    def scan(self, f, init, xs=None, length=None):
        import jax

        return jax.lax.scan(f, init, xs, length)


class Torch(Peer):
    """PyTorch as it comes: eager, with torch.func's transforms under the names of the others."""

    name, module, distributions = "torch", "torch", ("torch",)
    compiles = False

    def warm_up(self):
        self.grad(lambda x: self.sum(self.sin(x)))(self.ones(4))
        self.array_of_threads = self.modules[0].ones(100_000).sum()

    def array(self, values):
        return self.modules[0].tensor(values)

    def jit(self, function):
        return function

    def grad(self, function, argnums=0):
        return self.modules[0].func.grad(function, argnums=argnums)

    def value_and_grad(self, function, argnums=0):
        both = self.modules[0].func.grad_and_value(function, argnums=argnums)

        def swapped(*arguments):
            gradient, value = both(*arguments)
            return value, gradient

        return swapped

    def hessian(self, function, argnums=0):
        return self.modules[0].func.hessian(function, argnums=argnums)

    def jvp(self, function, primals, tangents):
        return self.modules[0].func.jvp(function, tuple(primals), tuple(tangents))

    def vmap(self, function, in_axes=0):
        return self.modules[0].func.vmap(function, in_dims=in_axes)

    def fori_loop(self, begin, end, body, carry):
        for i in range(begin, end):
            carry = body(i, carry)
        return carry

    def scan(self, f, carry, xs=None, length=None):
        """Over one array, of one array or a tuple."""
        results = []
        for x in xs if xs is not None else [None] * length:
            carry, result = f(carry, x)
            results.append(result)
        stack = self.modules[0].stack
        return carry, tuple(map(stack, zip(*results))) if isinstance(results[0], tuple) else stack(results)


class CompiledTorch(Torch):
    """The same through torch.compile, without what it keeps on disk."""

    name = "torch.compile"
    compiles = True

    def load(self):
        self.folder = tempfile.TemporaryDirectory()
        logging.getLogger("torch.utils.cpp_extension").setLevel(logging.ERROR)  # it warns that there is no CUDA,
        warnings.simplefilter("ignore", FutureWarning)  # and of its own uses of what it deprecates
        super().load()

    def jit(self, function):
        # A function made anew counts as another version of the same code: without a reset compiling stops after a few,
        # and what is on disk of the one before is found again, which no other compiler does.
        os.environ["TORCHINDUCTOR_CACHE_DIR"] = tempfile.mkdtemp(dir=self.folder.name)
        importlib.import_module("torch._inductor.utils").clear_caches()
        self.modules[0].compiler.reset()
        return self.modules[0].compile(function)

    def unload(self):
        self.folder.cleanup()


class Casadi(Peer):
    """CasADi by its buffer interface: a function is called on fixed memory, which is its fastest way."""

    name, module, distributions = "casadi", "casadi", ("casadi",)

    def function_call(self, build, inputs, shapes) -> Call:
        """The call of the Function that build() makes, on NumPy inputs; its results as arrays of the shapes."""
        import numpy as np

        results = [np.zeros(shape) for shape in shapes]

        def start():
            function = build()
            buffer, run = function.buffer()
            for i, array in enumerate(inputs):
                buffer.set_arg(i, memoryview(array))
            for i, array in enumerate(results):
                if function.nnz_out(i) != array.size:
                    raise ValueError(f"result {i} of {function} has {function.nnz_out(i)} entries, not {array.shape}")
                buffer.set_res(i, memoryview(array))
            return {"run": run, "kept": (function, buffer)}

        return Call("run()", build=start, result=lambda: [array.copy() for array in results])


class Numpy(Peer):
    name, module, distributions = "numpy", "numpy", ("numpy",)
    compiles = False

    def array(self, values):
        return values

    def jit(self, function):
        return function


PEERS = {peer.name: peer for peer in (Quabla, Jax, Torch, CompiledTorch, Casadi, Numpy)}
