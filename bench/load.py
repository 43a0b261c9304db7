"""Compares `godwit bench load` with as many parallel `dd iflag=direct bs=16M` (design section 13, "load").

load.py --binary build/godwit --writer build/tools/synthetic_checkpoint --dir DIR --out FILE

Writes a checkpoint of the released shape with the layers and experts asked for (4 and 288: 12.4 GB in FP8; 4 and 160: 9.1)
into DIR unless it is there, then runs both in turn: the page cache of the shards is dropped before each, the order changes
every round. dd reads all shards with `--threads` processes, each its own part of the list. `--device cuda` loads to the GPU, as
the engine does; a last run, not timed, compares every byte there with the files. Standard library only.
"""

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import date
from pathlib import Path


def shortened(config, layers, experts):
    """The released configuration with its first layers and so many experts only, and no draft block."""
    text = config["text_config"]
    text["n_routed_experts"] = experts
    for name in ("layer_types", "mlp_layer_types", "indexer_types"):
        text[name] = text[name][:layers]
    for name in ("kda_layers", "full_attn_layers"):
        text["linear_attn_config"][name] = [i for i in text["linear_attn_config"][name] if i < layers]
    text["num_hidden_layers"] = layers
    text["num_nextn_predict_layers"] = 0
    return config


def make_checkpoint(args):
    directory = Path(args.dir)
    if (directory / "model.safetensors.index.json").exists():
        return
    directory.mkdir(parents=True, exist_ok=True)
    source = Path(__file__).parent.parent / "tests/data/glm-5.3-flash-config.json"
    (directory / "config.json").write_text(json.dumps(shortened(json.loads(source.read_text()), args.layers, args.experts)))
    begin = time.monotonic()
    subprocess.run([args.writer, str(directory)], check=True)
    drop_cache(directory.glob("*.safetensors"))
    print(f"checkpoint written in {time.monotonic() - begin:.1f} s", flush=True)


def drop_cache(shards):
    for shard in shards:
        fd = os.open(shard, os.O_RDONLY)
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def run_dd(shards, threads):
    """Bytes a second of `threads` dd processes at a time that read every shard once, each a run of 16 MiB blocks."""
    block = 16 << 20
    blocks = [(shard, i) for shard in shards for i in range(-(-shard.stat().st_size // block))]
    scripts = []
    for t in range(threads):
        mine = blocks[len(blocks) * t // threads:len(blocks) * (t + 1) // threads]
        lines = []
        for shard in dict.fromkeys(s for s, _ in mine):
            ours = [i for s, i in mine if s == shard]
            lines.append(f"dd if='{shard}' of=/dev/null bs=16M iflag=direct skip={ours[0]} count={len(ours)} status=none")
        scripts.append(" && ".join(lines))
    begin = time.monotonic()
    running = [subprocess.Popen(["sh", "-c", script]) for script in scripts]
    if any(p.wait() for p in running):
        sys.exit("dd failed")
    return sum(shard.stat().st_size for shard in shards) / (time.monotonic() - begin)


def run_godwit(args, extra):
    with tempfile.NamedTemporaryFile() as out:
        subprocess.run([args.binary, "bench", "load", "--checkpoint", args.dir, "--threads", str(args.threads),
                        "--device", args.device, "--out", out.name, *extra], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        return json.load(out)


def cpu():
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":")[1].strip()
    return platform.processor()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--binary", default="build/godwit")
    parser.add_argument("--writer", default="build/tools/synthetic_checkpoint")
    parser.add_argument("--dir", required=True)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--experts", type=int, default=288)
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--threads", type=int, default=8)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--storage", default="", help="what the disk is, for the report")
    parser.add_argument("--out")
    args = parser.parse_args()
    make_checkpoint(args)
    shards = sorted(Path(args.dir).glob("*.safetensors"))
    rounds = []
    for i in range(args.rounds):
        row = {"load_average": os.getloadavg()[0]}
        for what in ("dd", "godwit") if i % 2 == 0 else ("godwit", "dd"):
            drop_cache(shards)
            if what == "dd":
                row[what] = run_dd(shards, args.threads)
                continue
            result = run_godwit(args, [])
            row[what], row["buffers_seconds"] = result["bytes_per_second"], result["buffers_seconds"]
        row["ratio"] = row["godwit"] / row["dd"]
        print(f"round {i + 1}: dd {row['dd'] / 1e9:.3f} GB/s, godwit {row['godwit'] / 1e9:.3f} GB/s, "
              f"{row['ratio']:.1%}, load average {row['load_average']:.1f}", flush=True)
        rounds.append(row)
    ranks = {}
    for name, extra in {"tp4": ["--tp", "4"], "tp4_ep4": ["--tp", "4", "--ep", "4"]}.items():
        drop_cache(shards)
        ranks[name] = run_godwit(args, extra)
    verified = run_godwit(args, ["--verify"])["verified"]  # or it has failed
    report = {
        "date": date.today().isoformat(),
        "hardware": {"cpu": cpu(), "cores": os.cpu_count(), "storage": args.storage, "kernel": platform.release()},
        "command": f"bench/load.py --layers {args.layers} --experts {args.experts} --threads {args.threads} "
                   f"--rounds {args.rounds} --device {args.device}",
        "device": args.device, "verified": verified,
        "bytes": sum(shard.stat().st_size for shard in shards), "shards": len(shards), "threads": args.threads,
        "rounds": rounds, "median_ratio": statistics.median(row["ratio"] for row in rounds), "one_rank": ranks}
    print(f"median {report['median_ratio']:.1%} of dd")
    if args.out:
        Path(args.out).write_text(json.dumps(report, indent=1) + "\n")


if __name__ == "__main__":
    main()
