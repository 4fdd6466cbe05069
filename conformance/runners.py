"""Runners: a function for each engine, which returns its operations by name.

Besides operations of cases.json there are `leaf`, which makes a variable, `numbers`, its elements in NumPy, and `grad`
and `backward`, which get the names of outputs and of the input, the variables by name, and the steps and inputs
that made them. An operation that an engine lacks is left out.
"""

import operator

import numpy as np


class NotExpressible(Exception):
    """The engine has no such operation."""


def run(ops, steps, inputs):
    """The variables by name."""
    env = dict(inputs)
    for i, step in enumerate(steps):
        name, op, of = step["name"], step["op"], step["of"]
        options = {k: v for k, v in step.items() if k not in ("name", "op", "of")}
        if op == "repeat":
            env[name] = env[of[0]]
            for _ in range(options["times"]):
                env = run(ops, options["steps"], env)
        elif op not in ops:
            raise NotExpressible(op)
        elif op in ("grad", "backward"):
            env[name] = ops[op](of[:-1], of[-1], env, steps[:i], inputs)
        else:
            env[name] = ops[op](*(env[n] for n in of), **options)
    return env


def set_item(x, value, at):
    x[at] = value
    return x


OPERATORS = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "div": operator.truediv,
    "neg": operator.neg,
    "pow": lambda x, exponent: x ** exponent,
    "matmul": operator.matmul,
    "sum": lambda x, axis=None: x.sum(axis),
    "mean": lambda x, axis: x.mean(axis),
    "reshape": lambda x, shape: x.reshape(shape),
    "transpose": lambda x: x.T,
    "slice": lambda x, ranges: x[tuple(slice(*r) for r in ranges)],
    "set_item": set_item,
}
METHODS = OPERATORS | {
    name: operator.methodcaller(name) for name in ("exp", "log", "sqrt", "tanh", "relu", "abs", "detach")
} | {
    "softmax": lambda x, axis: x.softmax(axis),
    "logsumexp": lambda x, axis: x.logsumexp(axis),
}


def pytorch():
    import torch

    def grad(ys, x, env, *_):
        if not env[ys[0]].requires_grad:
            return None
        return torch.autograd.grad(env[ys[0]].sum(), env[x], create_graph=True, allow_unused=True)[0]

    def backward(ys, x, env, *_):
        for y in ys:
            env[y].sum().backward(retain_graph=True)
        return env[x].grad

    return METHODS | {
        "leaf": lambda x: torch.tensor(x, dtype=torch.float64, requires_grad=True),
        "numbers": lambda x: x.detach().numpy(),
        "grad": grad,
        "backward": backward,
        "max": lambda x, axis: x.max(axis).values,
        "broadcast": lambda x, shape: x.broadcast_to(shape),
        "where": lambda a, b, mask: torch.where(torch.tensor(mask), a, b),
    }


def tinygrad():
    from tinygrad import Device, Tensor, dtypes

    def backward(ys, x, env, *_):
        for y in ys:
            env[y].sum().backward()
        return env[x].grad

    return METHODS | {
        "leaf": lambda x: Tensor(x.ravel().tolist(), dtype=dtypes.float64).reshape(x.shape),
        "numbers": lambda x: np.array(x.clone(Device.DEFAULT).tolist()).reshape(x.shape),
        "grad": lambda ys, x, env, *_: env[ys[0]].sum().gradient(env[x])[0],
        "backward": backward,
        "max": lambda x, axis: x.max(axis),
        "broadcast": lambda x, shape: x.expand(shape),
        "where": lambda a, b, mask: Tensor(mask).where(a, b),
    }


def numpy_like(np_, leaf, differentiate):
    """An engine with NumPy's functions. It differentiates functions, which run the steps again."""
    def grad(ys, x, env, steps, inputs):
        return differentiate(lambda v: run(ops, steps, {**inputs, x: v})[ys[0]].sum())(inputs[x])

    ops = OPERATORS | {
        "leaf": leaf,
        "numbers": np.asarray,
        "grad": grad,
        "exp": np_.exp,
        "log": np_.log,
        "sqrt": np_.sqrt,
        "tanh": np_.tanh,
        "abs": np_.abs,
        "max": np_.max,
        "relu": lambda x: np_.maximum(x, 0),
        "broadcast": lambda x, shape: np_.broadcast_to(x, shape),
        "where": lambda a, b, mask: np_.where(np.array(mask), a, b),
    }
    return ops


def autograd():
    from autograd import grad, numpy
    from autograd.scipy.special import logsumexp

    ops = numpy_like(numpy, numpy.array, grad)
    del ops["set_item"]
    ops["logsumexp"] = logsumexp
    ops["softmax"] = lambda x, axis: numpy.exp(x - logsumexp(x, axis, keepdims=True))
    return ops


def jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    ops = numpy_like(jax.numpy, jax.numpy.array, jax.grad)
    ops["relu"], ops["detach"] = jax.nn.relu, jax.lax.stop_gradient
    ops["softmax"], ops["logsumexp"] = jax.nn.softmax, jax.nn.logsumexp
    ops["set_item"] = lambda x, value, at: x.at[at].set(value)
    return ops


def first_order(ops, total):
    """`grad` and `backward` of an engine whose gradients are numbers, on a graph of their own."""
    def backward(ys, x, env, steps, inputs):
        gradients = set()  # and what is computed from them
        for step in steps:
            if step["op"] == "grad" or gradients & {*step["of"]}:
                gradients.add(step["name"])
        if gradients & {*ys}:
            raise NotExpressible("second order")
        leaves = {name: ops["leaf"](ops["numbers"](v)) for name, v in inputs.items()}
        env = run(ops, [step for step in steps if step["name"] not in gradients], leaves)
        for y in ys:
            total(env[y]).backward()
        return leaves[x]

    return backward


def mygrad():
    import mygrad as mg
    from mygrad.nnet.activations import relu, softmax

    ops = numpy_like(mg, mg.tensor, None) | {"relu": relu, "softmax": softmax}
    backward = first_order(ops, mg.sum)
    ops["grad"] = lambda *args: backward(*args).grad
    ops["detach"] = lambda x: mg.tensor(x.data, constant=True)
    ops["logsumexp"] = lambda x, axis: x.max(axis) + mg.log(mg.exp(x - x.max(axis)).sum(axis))
    return ops


def micrograd():
    """Arrays of `Value` in NumPy: it has the views and the broadcasting, micrograd the arithmetic."""
    from micrograd.engine import Value

    each = np.frompyfunc
    ops = OPERATORS | {
        "add": np.add,
        "sub": np.subtract,
        "mul": np.multiply,
        "div": np.divide,
        "matmul": np.matmul,
        "leaf": each(Value, 1, 1),
        "numbers": lambda x: np.array(each(lambda x: getattr(x, "data", x), 1, 1)(x), float),
        "relu": each(Value.relu, 1, 1),
        "abs": each(lambda x: x.relu() + (-x).relu(), 1, 1),
        "detach": each(lambda x: Value(x.data), 1, 1),
        "broadcast": np.broadcast_to,
        "where": lambda a, b, mask: np.where(mask, a, b),
        "sum": np.sum,
    }
    del ops["mean"]
    backward = first_order(ops, lambda y: Value(0) + np.sum(y))
    ops["grad"] = ops["backward"] = lambda *args: each(lambda x: x.grad, 1, 1)(backward(*args))
    return ops


ENGINES = [micrograd, mygrad, autograd, jax, pytorch, tinygrad]
