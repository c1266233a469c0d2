"""Checks what a demo prints, on standard input: the last is the short form of the timeline of so many pods.
    timeline.py PODS"""
import re
import sys

COMMAND = "$ coracle trace deployment/web --short\n"
ROW = re.compile(r"(\S.*?) +(\d+\.\d) (ms|s) +(\d+) % ?(.*)")
MILLISECONDS = {"ms": 1, "s": 1000}
# Nothing becomes ready without them.
STAGES = {"API server", "store", "controllers", "scheduler", "sandbox", "container"}
# One or two lines, the time axis, ten rows, and the sum.
MOST_LINES = 14

said = sys.stdin.read()
_, command, picture = said.partition(COMMAND)
assert command, f"no timeline: {said}"
lines = picture.splitlines()
assert len(lines) <= MOST_LINES, f"{len(lines)} lines"
assert f"{sys.argv[1]} pods ready after" in " ".join(lines[:2]), lines[:2]

*rows, total = [match.groups() for match in map(ROW.fullmatch, lines) if match]
assert total[0] == "total" and lines[-1].startswith("total"), lines[-1]
assert STAGES <= {name for name, *_ in rows}, f"without {STAGES - {name for name, *_ in rows}}"
for name, _, _, share, bar in rows:
    assert int(share) < 5 or bar.strip(), f"{name} has no bar"

# Each time is rounded.
exact = lambda row: float(row[1]) * MILLISECONDS[row[2]]
rounding = sum(0.051 * MILLISECONDS[unit] for _, _, unit, *_ in [*rows, total])
assert abs(sum(map(exact, rows)) - exact(total)) <= rounding, f"the sum of {[row[:3] for row in rows]} is not {total[1:3]}"
explained = float(total[4].removesuffix(" % explained"))
assert explained >= 90, f"{explained} % explained"
