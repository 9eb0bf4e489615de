"""Other sizes and activations than those of the named rows: what is fast there must be fast here, too."""

from registry import row

from .pinn import pinn1d

CASES = (
    ("sin", 17, 1),
    ("sigmoid", 17, 7),
    ("softplus", 50, 1000),
    ("gelu", 50, 10_007),
    ("sin", 100, 1000),
    ("tanh", 100, 10_007),
)

for activation, width, points in CASES:
    peers = pinn1d([1, width, width, 1], points, activation=activation)
    row(
        "varied",
        f"PINN 1-{width}-{width}-1, {points:,} point{'s' * (points > 1)}, {activation}",
        {peer: peers[peer] for peer in ("quabla", "jax")},
        staging=50,
        call=1.3,
    )
