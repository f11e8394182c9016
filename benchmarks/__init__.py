"""What ringhash costs, beside its peers and beside what the machine can do at best.

pytest benchmarks --benchmark-only     the suite; movement and balance are asserted
python -m benchmarks                   the suite, the peers, docs/benchmarks.md and its charts
python -m benchmarks --quick           under a minute: fails when a ratio is far off
"""
