"""Several systems on several seeds, paired: one table and one page."""

import lumos

evaluation = lumos.evaluate("demo:600", systems=["strict", "own"], seeds=3)
for row in evaluation.rows:
    print(row)
print(evaluation.report("evaluation.html"))
