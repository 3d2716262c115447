"""Attack a run, and set what was found beside what is guaranteed."""

import lumos

run = lumos.train("demo:600", label_epsilon=2.0)
report = lumos.run_audit(run, attacks=["randomized-labels", "ledger"])
for row in report.rows:
    measured, interval, _, bound = report.figures(row)
    print(f"{row.about}: {measured} ({interval}), bound {bound}: {report.verdict(row)}")
print(report.power)
print("guarantees that an attack refutes:", len(report.exceeded))
