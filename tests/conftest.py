"""Settings of the whole suite: hypothesis repeats the same examples in every run and writes nothing to the disk."""

import hypothesis

hypothesis.settings.register_profile(
    "quabla",
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.data_too_large],
)
hypothesis.settings.load_profile("quabla")
