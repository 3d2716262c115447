"""Attack a run, and set what was found beside what is guaranteed."""

import lumos

run = lumos.train("demo:600", epsilon=2.0)
report = lumos.run_audit(run, attacks=["randomized-labels", "ledger"])
for row in report.rows:
    found, without, claimed = report.figures(row)
    print(f"{row.adversary}, {row.about}: {found}; claimed {claimed}: {report.verdict(row)}")
print("guarantees that an attack refutes:", len(report.exceeded))
