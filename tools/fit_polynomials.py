#!/usr/bin/env python3
"""Fits the polynomials of the vector mathematics (src/cpu/math_*.h) and prints their coefficients as C.

    tools/fit_polynomials.py [name ...]

Needs mpmath. Each fit minimises the largest weighted error |weight (f - p)| over an interval: polynomials by the
exchange algorithm of Remez, rationals by weighted least squares after Loeb and Lawson. (J.-M. Muller, "Elementary
Functions", chapter 3.) The weight turns the error of the polynomial into the relative error of the function that uses
it. Once fitted, coefficients are rounded one after the other, lowest first, and the rest fitted anew, so that the
rounding of a coefficient is made good by the later ones.

The printed error is log2 of the largest weighted error with the rounded coefficients.
"""

import struct
import sys

from mpmath import (
    asin,
    atan,
    cos,
    diff,
    erf,
    erfc,
    exp,
    expm1,
    findroot,
    log,
    lu_solve,
    matrix,
    mp,
    mpf,
    pi,
    polyval,
    psi,
    sin,
    sinh,
    sqrt,
    tan,
    tanh,
)

mp.prec = 240


def round64(x):
    return mpf(float(x))


def round32(x):
    """Nearest float32 (float(x) first: a double rounding moves a coefficient by less than it matters)."""
    return mpf(struct.unpack("f", struct.pack("f", float(x)))[0])


def extrema(error, low, high, samples):
    """Points of alternating local extrema of `error`, refined by a parabola through the samples around each."""
    xs = [low + (high - low) * (1 - mp.cos(pi * i / samples)) / 2 for i in range(samples + 1)]
    es = [error(x) for x in xs]
    points = []
    for i, e in enumerate(es):
        left = abs(es[i - 1]) if i else -1
        right = abs(es[i + 1]) if i < samples else -1
        if not (abs(e) >= left and abs(e) >= right):
            continue
        x, peak = xs[i], e
        if 0 < i < samples:
            h1, h2 = xs[i] - xs[i - 1], xs[i + 1] - xs[i]
            d1, d2 = (es[i] - es[i - 1]) / h1, (es[i + 1] - es[i]) / h2
            curvature = (d2 - d1) / (h1 + h2)
            if curvature:
                candidate = (xs[i - 1] + xs[i]) / 2 - d1 / (2 * curvature)
                if xs[i - 1] < candidate < xs[i + 1] and abs(error(candidate)) > abs(peak):
                    x, peak = candidate, error(candidate)
        if points and (points[-1][1] > 0) == (peak > 0):
            if abs(peak) > abs(points[-1][1]):
                points[-1] = (x, peak)
        else:
            points.append((x, peak))
    return points


def alternate(points, count):
    """The `count` consecutive extrema with the larger ends."""
    while len(points) > count:
        points.pop(0 if abs(points[0][1]) < abs(points[-1][1]) else -1)
    return [x for x, _ in points]


def remez(f, weight, low, high, degree, start=0):
    """Coefficients, lowest first, of the weighted minimax polynomial; `start` leaves out (as 0) the lower powers."""
    low, high = mpf(low), mpf(high)
    unknowns = degree + 2 - start
    points = [low + (high - low) * (1 - mp.cos(pi * (2 * i + 1) / (2 * unknowns))) / 2 for i in range(unknowns)]
    for _ in range(40):
        a, b = matrix(unknowns, unknowns), matrix(unknowns, 1)
        for i, x in enumerate(points):
            w = weight(x)
            for j in range(start, degree + 1):
                a[i, j - start] = w * x**j
            a[i, unknowns - 1] = (-1) ** i
            b[i] = w * f(x)
        solution = lu_solve(a, b)
        p = [mpf(0)] * start + [solution[j] for j in range(unknowns - 1)]
        peaks = extrema(lambda x: weight(x) * (f(x) - polyval(p[::-1], x)), low, high, 16 * unknowns)
        if max(abs(e) for _, e in peaks) < abs(solution[unknowns - 1]) * mpf("1.001"):
            break
        if len(peaks) < unknowns:
            raise ValueError(f"{len(peaks)} extrema where {unknowns} are needed")
        points = alternate(peaks, unknowns)
    return p


def lawson(f, weight, low, high, degree_p, degree_q):
    """Coefficients (p, q), lowest first, of a nearly weighted-minimax p/q with q[0] = 1: least squares on many points,
    where q of the last step divides the residual (H. L. Loeb, 1957) and points of large error gain weight (C. L.
    Lawson, 1961)."""
    low, high = mpf(low), mpf(high)
    count, unknowns = 12 * (degree_p + degree_q + 2), degree_p + 1 + degree_q
    xs = [low + (high - low) * (1 - mp.cos(pi * i / (count - 1))) / 2 for i in range(count)]
    fs, ws = [f(x) for x in xs], [weight(x) for x in xs]
    emphasis = [mpf(1)] * count
    q, best = [mpf(1)], None
    for step in range(60):
        normal, right = matrix(unknowns, unknowns), matrix(unknowns, 1)
        for x, value, w, e in zip(xs, fs, ws, emphasis, strict=True):
            scale = e * (w / polyval(q[::-1], x)) ** 2
            row = [x**j for j in range(degree_p + 1)] + [-value * x**j for j in range(1, degree_q + 1)]
            for i in range(unknowns):
                right[i] += scale * row[i] * value
                for j in range(i + 1):
                    normal[i, j] += scale * row[i] * row[j]
        for i in range(unknowns):
            for j in range(i):
                normal[j, i] = normal[i, j]
        solution = lu_solve(normal, right)
        p = [solution[j] for j in range(degree_p + 1)]
        q = [mpf(1)] + [solution[degree_p + 1 + j] for j in range(degree_q)]
        errors = [
            abs(w * (value - polyval(p[::-1], x) / polyval(q[::-1], x))) for x, value, w in zip(xs, fs, ws, strict=True)
        ]
        worst = max(errors)
        if best is None or worst < best[0]:
            best = (worst, p, q)
        if step > 3:
            emphasis = [e * (error / worst + mpf("1e-3")) for e, error in zip(emphasis, errors, strict=True)]
            total = sum(emphasis)
            emphasis = [e * count / total for e in emphasis]
    return best[1], best[2]


def fit_polynomial(f, weight, low, high, degree, rounding):
    """Rounded coefficients, lowest first: rounded at once, or one after the other, whichever is better."""
    at_once = [rounding(c) for c in remez(f, weight, low, high, degree)]
    fixed = []
    try:
        while len(fixed) <= degree:
            head = list(fixed)
            p = remez(lambda x: f(x) - (polyval(head[::-1], x) if head else 0), weight, low, high, degree, len(head))
            fixed.append(rounding(p[len(head)]))
    except ValueError:  # the rounding errors are all that is left to fit: they need not alternate
        return at_once
    return min(at_once, fixed, key=lambda p: worst_error(f, weight, low, high, p))


def worst_error(f, weight, low, high, p, q=(1,)):
    low, high = mpf(low), mpf(high)
    xs = [low + (high - low) * i / 2000 for i in range(2001)]
    return max(abs(weight(x) * (f(x) - polyval(list(p)[::-1], x) / polyval(list(q)[::-1], x))) for x in xs)


def show(name, f, weight, low, high, p, q=None):
    error = worst_error(f, weight, low, high, p, q or [1])
    print(f"/* {name}: weighted error 2^{float(log(error, 2)):.2f} on [{float(low):.6g}, {float(high):.6g}] */")
    for label, c in (("", p), ("denominator ", q or [])):
        if c:
            print("    " + label + ", ".join(float(x).hex() for x in c))
    sys.stdout.flush()


def near_zero(f, order_value):
    """f with its removable singularity at 0 filled in."""
    return lambda x: mpf(order_value) if x == 0 else f(x)


def safe_weight(w):
    """A weight that is 0/0 at 0, taken a little to the right."""
    return lambda x: w(x if x else mpf(2) ** -60)


FITS = {}


def fit(function):
    FITS[function.__name__] = function
    return function


def polynomial(name, f, weight, low, high, degree, rounding):
    show(name, f, weight, low, high, fit_polynomial(f, weight, low, high, degree, rounding))


def rational(name, f, weight, low, high, degree_p, degree_q, rounding):
    p, q = lawson(f, weight, low, high, degree_p, degree_q)
    show(name, f, weight, low, high, [rounding(c) for c in p], [rounding(c) for c in q])


HALF_LN2 = log(2) / 2 * (1 + mpf(2) ** -20)
QUARTER_PI = pi / 4 * (1 + mpf(2) ** -20)


def exp_tail(x):
    return mpf(1) / 2 if abs(x) < mpf(10) ** -30 else (expm1(x) - x) / x**2


@fit
def exp_f64():
    polynomial("exp: q with e^r = 1 + r + r^2 q(r)", exp_tail, lambda x: x**2 / exp(x), -HALF_LN2, HALF_LN2, 9, round64)


@fit
def exp_f32():
    polynomial("exp: q with e^r = 1 + r + r^2 q(r)", exp_tail, lambda x: x**2 / exp(x), -HALF_LN2, HALF_LN2, 4, round32)


# The odd functions below are x + x^3 p(x^2), in z = x^2; the weight is that of the relative error of the whole.
def odd(name, function, limit, high, degree, rounding, degree_q=0):
    f = near_zero(lambda z: (function(sqrt(z)) - sqrt(z)) / sqrt(z) ** 3, limit)
    weight = safe_weight(lambda z: sqrt(z) ** 3 / function(sqrt(z)))
    if degree_q:
        rational(name, f, weight, 0, high, degree, degree_q, rounding)
    else:
        polynomial(name, f, weight, 0, high, degree, rounding)


@fit
def tanh_f64():
    odd("tanh: tanh x = x + x^3 p(x^2)/q(x^2)", tanh, mpf(-1) / 3, mpf("0.5625") ** 2, 2, round64, 3)


@fit
def tanh_f32():
    odd("tanh: tanh x = x + x^3 p(x^2)/q(x^2)", tanh, mpf(-1) / 3, mpf("0.5625") ** 2, 1, round32, 1)


@fit
def sin_f64():
    odd("sin: sin r = r + r^3 p(r^2)", sin, mpf(-1) / 6, QUARTER_PI**2, 5, round64)


@fit
def sin_f32():
    odd("sin: sin r = r + r^3 p(r^2)", sin, mpf(-1) / 6, QUARTER_PI**2, 2, round32)


def cos_small(degree, rounding):
    f = near_zero(lambda z: (cos(sqrt(z)) - 1 + z / 2) / z**2, mpf(1) / 24)
    polynomial(
        "cos: cos r = 1 - r^2/2 + r^4 p(r^2)", f, lambda z: z**2 / cos(sqrt(z)), 0, QUARTER_PI**2, degree, rounding
    )


@fit
def cos_f64():
    cos_small(5, round64)


@fit
def cos_f32():
    cos_small(2, round32)


@fit
def log_f64():
    limit = (sqrt(2) - 1) / (sqrt(2) + 1)
    f = near_zero(lambda w: (log((1 + sqrt(w)) / (1 - sqrt(w))) - 2 * sqrt(w)) / sqrt(w) ** 3, mpf(2) / 3)
    weight = safe_weight(lambda w: sqrt(w) ** 3 / log((1 + sqrt(w)) / (1 - sqrt(w))))
    polynomial("log: log((1+s)/(1-s)) = 2 s + s^3 p(s^2)", f, weight, 0, limit**2 * (1 + mpf(2) ** -20), 6, round64)


@fit
def log_f32():
    limit = (sqrt(2) - 1) / (sqrt(2) + 1)
    f = near_zero(lambda w: (log((1 + sqrt(w)) / (1 - sqrt(w))) - 2 * sqrt(w)) / sqrt(w) ** 3, mpf(2) / 3)
    weight = safe_weight(lambda w: sqrt(w) ** 3 / log((1 + sqrt(w)) / (1 - sqrt(w))))
    polynomial("log: log((1+s)/(1-s)) = 2 s + s^3 p(s^2)", f, weight, 0, limit**2 * (1 + mpf(2) ** -20), 2, round32)


@fit
def sinh_f64():
    odd("sinh: sinh x = x + x^3 p(x^2)", sinh, mpf(1) / 6, 1, 6, round64)


@fit
def sinh_f32():
    odd("sinh: sinh x = x + x^3 p(x^2)", sinh, mpf(1) / 6, 1, 2, round32)


@fit
def tan_f64():
    odd("tan: tan r = r + r^3 p(r^2)/q(r^2)", tan, mpf(1) / 3, QUARTER_PI**2, 3, round64, 3)


@fit
def tan_f32():
    odd("tan: tan r = r + r^3 p(r^2)", tan, mpf(1) / 3, QUARTER_PI**2, 5, round32)


def erf_small(degree, rounding):
    """erf x = x + x p(x^2) for |x| < 1"""
    f = near_zero(lambda z: erf(sqrt(z)) / sqrt(z) - 1, 2 / sqrt(pi) - 1)
    weight = safe_weight(lambda z: sqrt(z) / erf(sqrt(z)))
    polynomial("erf: erf x = x + x p(x^2)", f, weight, 0, 1, degree, rounding)


@fit
def erf_f64():
    erf_small(12, round64)


@fit
def erf_f32():
    erf_small(6, round32)


def erfcx(x):
    return exp(x * x) * erfc(x)


@fit
def erf_tail_f64():
    rational("erf: 1 - erf x = e^(-x^2) p(x)/q(x)", erfcx, lambda x: exp(-x * x), 1, 6, 5, 6, round64)


@fit
def erf_tail_f32():
    rational("erf: 1 - erf x = e^(-x^2) p(x)/q(x)", erfcx, lambda x: exp(-x * x), 1, 4, 2, 2, round32)


# One polynomial for every argument above 3/4, in a variable that takes [0, inf) to [-1, 1); as (1 + 2 x) erfcx x is
# nearly constant, errors of that variable hardly count.
def erfc_far(high, degree, rounding):
    def variable(x):
        return (mpf(x) - 3) / (mpf(x) + 3)

    def f(t):
        x = 3 * (1 + t) / (1 - t)
        return erfcx(x) * (1 + 2 * x)

    # p(t) is about 1.2 throughout: rounding its first coefficient would cost half an ulp, hence a second part.
    low, high = variable(0.75), variable(high)
    exact = remez(f, lambda t: 1 / f(t), low, high, degree)
    p = [rounding(c) for c in exact]
    rest = rounding(exact[0] - p[0])
    print(f"first coefficient: {float(p[0]).hex()} and {float(rest).hex()}")
    show(
        "erfc: erfc x = e^(-x^2) p(t)/(1 + 2 x), t = (x - 3)/(x + 3)",
        f,
        lambda t: 1 / f(t),
        low,
        high,
        [p[0] + rest, *p[1:]],
    )


@fit
def erfc_f64():
    erfc_far(27.5, 20, round64)


@fit
def erfc_f32():
    erfc_far(10.5, 10, round32)


@fit
def asin_f64():
    odd("arcsin: asin r = r + r^3 p(r^2)", asin, mpf(1) / 6, mpf(1) / 4, 11, round64)


@fit
def atan_f64():
    odd("arctan: atan r = r + r^3 p(r^2)", atan, mpf(-1) / 3, mpf(1) / 4, 12, round64)


@fit
def cbrt_f64():
    f = lambda m: m ** (mpf(-1) / 3)
    polynomial("cbrt: p(m) = m^(-1/3)", f, lambda m: 1 / f(m), 1, 2, 4, round64)


# As log, one term of the series exact and in two parts: the rest is small enough for one.
@fit
def pow_f64():
    limit = (sqrt(2) - 1) / (sqrt(2) + 1)
    f = near_zero(
        lambda w: ((log((1 + sqrt(w)) / (1 - sqrt(w))) - 2 * sqrt(w)) / sqrt(w) ** 3 - mpf(2) / 3) / w, mpf(2) / 5
    )
    weight = safe_weight(lambda w: sqrt(w) ** 5 / log((1 + sqrt(w)) / (1 - sqrt(w))))
    polynomial(
        "pow: log((1+s)/(1-s)) = 2 s + s^3 (2/3 + s^2 p(s^2))", f, weight, 0, limit**2 * (1 + mpf(2) ** -20), 6, round64
    )


@fit
def digamma_f64():
    zero = findroot(lambda x: psi(0, x), mpf("1.46163"))
    ratio = lambda t: psi(0, mpf(3) / 2 + t) / (mpf(3) / 2 + t - zero)
    middle = ratio(mpf(0))
    for name, exact in (("zero", zero), ("middle", middle)):
        print(f"{name}: {float(exact).hex()} and {float(exact - round64(exact)).hex()}")
    f = near_zero(lambda t: (ratio(t) - middle) / t, diff(ratio, 0))
    weight = lambda t: max(abs(t), mpf("1e-3")) / ratio(t)
    title = "digamma: digamma x = (x - zero) (middle + t p(t)/q(t)), t = x - 3/2"
    rational(title, f, weight, -0.5, 0.5, 6, 6, round64)


if __name__ == "__main__":
    for chosen in sys.argv[1:] or FITS:
        print(f"/* {chosen} */")
        FITS[chosen]()
