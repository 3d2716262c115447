#!/usr/bin/env bash
# The long runs whose figures docs and notes quote. Usage: evidence.sh OUTPUT_FOLDER
# Needs the real graphs: set LUMOS_DATA. Takes two to three hours on two cores; never part of CI.
set -euo pipefail
out=${1:?usage: evidence.sh OUTPUT_FOLDER}
: "${LUMOS_DATA:?set LUMOS_DATA to the folder with the SNAP graphs}"
mkdir -p "$out"

run() { # name, then the arguments of `lumos trees`
    local name=$1
    shift
    echo "== lumos trees $*"
    lumos trees "$@" --json >"$out/$name.json"
    python - "$out/$name.json" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
keys = ("max_workload", "lower_bound", "optimal", "comparisons", "messages", "rounds", "seconds", "peak_rss_mb")
print("   " + ", ".join(f"{key} {run[key]}" for key in keys))
PY
}

for graph in facebook lastfm twitch-ENGB; do
    run "$graph-greedy" "$graph" --balancer greedy --compare ideal
    run "$graph-optimal" "$graph" --balancer optimal
done
run facebook-mcmc-1000 facebook --balancer mcmc --iterations 1000 --compare ideal
run facebook-mcmc-50000 facebook --balancer mcmc --iterations 50000 --compare ideal
run lastfm-mcmc-300 lastfm --balancer mcmc --iterations 300 --compare ideal
for shards in 1 2 7; do
    run "facebook-optimal-shards-$shards" facebook --shards "$shards"
done
run million-greedy demo:1000000 --balancer greedy --compare ideal
run million-optimal demo:1000000 --balancer optimal
run lastfm-mcmc-300-secure lastfm --balancer mcmc --iterations 300
run facebook-greedy-secure facebook --balancer greedy
run facebook-mcmc-1000-secure facebook --balancer mcmc --iterations 1000

train() { # name, then the arguments of `lumos train`
    local name=$1
    shift
    echo "== lumos train $*"
    lumos train "$@" --compare ideal --json >"$out/$name.json"
    scores "$name"
}

python_train() { # name, then the arguments of `lumos.train`, for settings that are no options
    echo "== lumos.train($2)"
    python -c "import json, lumos; print(json.dumps(lumos.train($2).summary()))" >"$out/$1.json"
    scores "$1"
}

scores() { # name
    python - "$out/$1.json" <<'PY'
import json, sys
run = json.load(open(sys.argv[1]))
keys = [key for key in run if key.endswith(("test_accuracy", "test_auc"))]
print("   " + ", ".join(f"{key} {run[key]:.4f}" for key in keys), end=", ")
print(f"seconds_per_epoch {run['seconds_per_epoch']}, peak_rss_mb {run['peak_rss_mb']}")
PY
}

train paper-facebook-gcn facebook --profile paper --control
train paper-facebook-gat facebook --profile paper --backbone gat --no-floor
train paper-facebook-inf facebook --profile paper --epsilon inf
python_train paper-facebook-inf-bins '"facebook", profile="paper", compare="ideal", epsilon=float("inf"), bins=True'
train paper-facebook-literal facebook --profile paper --literal --control --no-floor
train paper-facebook-link-gcn facebook --profile paper --task link
train paper-facebook-link-gat facebook --profile paper --task link --backbone gat --no-floor
for graph in twitch-ENGB demo; do
    train "paper-$graph" "$graph" --profile paper --control
    train "paper-$graph-link" "$graph" --profile paper --task link --control
done
here=$(dirname "$0")
structure=$(realpath "$out")/structure
echo "== what a party of a comparison or a score sees, with samples that show an advantage of 0.02"
(cd "$here/.." && LUMOS_PRIVACY_SAMPLES=25000 pytest -q -n 2 \
    tests/twoparty/compare/test_privacy.py tests/twoparty/score/test_privacy.py tests/test_distinguisher.py)
echo "== tests that make test leaves out, and properties with more examples"
(cd "$here/.." && LUMOS_EXAMPLES=500 pytest -q -n 2)
(cd "$here/.." && python -m benchmarks.bench --full)
python "$here/feature_scales.py" --out "$out/feature-scales.json"
python "$here/own_layers.py" --out "$out/own-layers.json"
(cd "$here/.." && python -m benchmarks.strict_leak)
python "$here/strict_tradeoff.py" --out "$out"
python "$here/learning_curves.py" --systems strict labelled lpgnn centralized --out "$out" \
    --plot "$out/learning-curves.svg"
for graph in "--graph demo" "--graph twitch-ENGB" "--graph lastfm --words" "--communities 100" \
    "--family heterophilous" "--family gaussian" "--family small" "--family few-labels"; do
    # shellcheck disable=SC2086
    python "$here/strict_tradeoff.py" $graph --cells "label 2" "label 3" "label 4" --out "$out"
done
for graph in "--graph facebook" "--graph twitch-ENGB" "--graph demo" "--graph lastfm --words"; do
    # shellcheck disable=SC2086
    python "$here/strict_tradeoff.py" --task link $graph --seeds 3 --out "$out"
done
python "$here/link_scores.py"
(cd "$here/.." && python -m benchmarks.strict_link_leak)
(cd "$here/.." && python -m reproduce workload cost --graph facebook --graph lastfm \
    --results none --out "$structure")

echo "== tracking examples with MLflow and Weights & Biases themselves, offline, in an environment of their own"
rm -rf "$out/tracking"
python -m venv "$out/tracking/env"
"$out/tracking/env/bin/pip" install -q -c "$here/../constraints.txt" "$here/..[tracking]"
"$out/tracking/env/bin/python" "$here/trackers.py" "$out/tracking/runs" | tee "$out/tracking.txt"

echo "== ranks against one process, and scale"
python "$here/ranks_agree.py" | tee "$out/ranks-agree.txt"
python "$here/scale.py" "$out/scale" | tee "$out/scale.txt"

echo "== real devices: chaos, two hundred of them, an hour with churn"
lumos audit demo:60 --deployment --out "$out/audit-deployment.json" | tee "$out/audit-deployment.txt"
python "$here/timing.py" --json "$out/timing.json" | tee "$out/timing.txt"
python "$here/chaos.py" | tee "$out/chaos.txt"
python "$here/chaos.py" --graph demo:20 --paper --epochs 30 | tee "$out/chaos-paper.txt"
python "$here/chaos.py" --graph demo:12 --paper --task link --epochs 10 --kills 6 | tee -a "$out/chaos-paper.txt"
python "$here/paper_devices.py" --json "$out/paper-devices.json" | tee "$out/paper-devices.txt"
python "$here/lying_devices.py" | tee "$out/lying-devices.txt"
python "$here/heterogeneity.py" --json "$out/heterogeneity.json" | tee "$out/heterogeneity.txt"
lumos up demo:200 --randomness seeded --json > "$out/two-hundred-devices.json"
python "$here/real_devices.py" | tee "$out/real-devices.txt"
python "$here/soak.py" --minutes 60 | tee "$out/soak.txt"
