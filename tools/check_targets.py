#!/usr/bin/env python3
"""Compares the committed step measurements with the performance targets.

bench/targets.json names each target and, once something was measured, a ceiling that must not be crossed again.
bench/results/step-*.json hold what `godwit bench step --out` wrote, with hardware and date; of several files the
newest that has a case counts; two contexts are compared within one file, which one build has measured. Targets are
of bf16 caches and of contexts that sequences have to themselves.

Prints one line a target: met, missed or not measured. Fails only for what is wrong whatever the machine: files
that are malformed, a case whose timed logits differ from an untimed step's, or a ceiling that was crossed.
"""
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def load_cases(folder):
    """(kind, ep, batch, context, rows) -> {file: ms}, newest file first; and what is wrong with the files."""
    cases, wrong = {}, []
    for path in sorted(folder.glob("step-*.json"), reverse=True):
        try:
            document = json.loads(path.read_text())
            for field in ("hardware", "date", "command"):
                if not document.get(field):
                    wrong.append(f"{path.name}: no {field}")
            for run in document["runs"]:
                for case in run["cases"]:
                    if case["refused"] or run.get("shared_context") or case.get("kv", "bf16") != "bf16":
                        continue
                    key = (run["kind"], run["ep"], case["batch"], case["context"], case["rows"])
                    step = next(p for p in case["parts"] if p["part"] == "step")
                    if not case["same_logits"]:
                        wrong.append(f"{path.name}: {key}: timed logits differ from an untimed step's")
                    if not 0 < step["us_min"] <= step["us"] <= step["us_max"]:
                        wrong.append(f"{path.name}: {key}: times {step['us_min']}, {step['us']}, {step['us_max']}")
                    expected, got = case["expected_experts"], case["distinct_experts"]
                    # The mean of all layers; a draft has one, whose draw alone strays further.
                    if run["kind"] in ("decode", "verify") and expected > 20 and abs(got / expected - 1) > 0.05:
                        wrong.append(f"{path.name}: {key}: {got:.1f} distinct experts, {expected:.1f} expected")
                    cases.setdefault(key, {}).setdefault(path.name, step["us"] / 1e3)
        except (KeyError, TypeError, ValueError, StopIteration) as error:
            wrong.append(f"{path.name}: {type(error).__name__}: {error}")
    return cases, wrong


def key_of(target, prefix=""):
    return (target["kind"], target["ep"], target["batch"], target[prefix + "context"], target["rows"])


def measure(target, cases):
    """The target's quantity and where it comes from, or None."""
    found = cases.get(key_of(target), {})
    base = cases.get(key_of(target, "over_"), {}) if target["unit"] == "%" else found
    source = next((name for name in found if name in base), None)
    if source is None:
        return None
    value = found[source]
    if target["unit"] == "ms":
        return value, source
    if target["unit"] == "tok/s":
        return target["rows"] / value * 1e3, source
    return 100 * (value / base[source] - 1), source  # "%": more than at a shorter context


def main(folder, targets_file):
    cases, wrong = load_cases(folder)
    for target in json.loads(targets_file.read_text())["targets"]:
        measured = measure(target, cases)
        goal = f"{'>=' if target['unit'] == 'tok/s' else '<='} {target['target']} {target['unit']}"
        if measured is None:
            print(f"not measured  {target['name']}: {goal}")
            if "ceiling" in target:
                wrong.append(f"{target['name']}: has a ceiling and no measurement")
            continue
        value, source = measured
        more_is_better = target["unit"] == "tok/s"
        met = value >= target["target"] if more_is_better else value <= target["target"]
        print(f"{'met' if met else 'missed':<13} {target['name']}: {value:.3f} {target['unit']}, {goal} ({source})")
        if "ceiling" in target and (value < target["ceiling"] if more_is_better else value > target["ceiling"]):
            wrong.append(f"{target['name']}: {value:.3f} {target['unit']} is worse than {target['ceiling']}, reached before")
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    return 1 if wrong else 0


if __name__ == "__main__":
    arguments = [pathlib.Path(a) for a in sys.argv[1:]]
    sys.exit(main(*(arguments or [ROOT / "bench/results", ROOT / "bench/targets.json"])))
