"""A float32 loss with its gradients, then the same function on every device that can run here."""

import quabla as qb


def loss(x, w):
    y = qb.tanh(x * w)
    return qb.sum(qb.where(x > 0.0, y, 0.0) ** 2)


x = qb.array([-1.0, 0.5, 1.0, 2.0], dtype=qb.float32)
w = qb.array([0.3, -0.2, 0.1, 0.4], dtype=qb.float32)
value, (gx, gw) = qb.value_and_grad(loss, argnums=(0, 1))(x, w)
print(value.dtype, value.item(), gw.tolist())
for device in qb.devices():
    print(device, qb.jit(loss, device=device)(x, w).item())
