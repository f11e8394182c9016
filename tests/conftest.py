"""How deep Hypothesis looks: `pytest --hypothesis-profile=thorough` takes minutes instead of seconds,
and `few` is for `make valgrind`, where everything is fifty times slower."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile("ci", max_examples=50, stateful_step_count=20, deadline=None, print_blob=True,
                          suppress_health_check=[HealthCheck.too_slow])  # fmt: skip
settings.register_profile("thorough", settings.get_profile("ci"), max_examples=1500, stateful_step_count=60)
settings.register_profile("few", settings.get_profile("ci"), max_examples=5, stateful_step_count=8)
settings.load_profile("ci")
