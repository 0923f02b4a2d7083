#!/bin/bash
# Train on four machines with Slurm:  sbatch examples/cluster/slurm.sh films/store runs/films
# GRAPH and the run folder are on a file system that all machines see.
#SBATCH --job-name=hanme
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --cpus-per-task=16
#SBATCH --mem=64G
#SBATCH --time=24:00:00
#SBATCH --requeue

set -euo pipefail
graph=$1 out=$2
first=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)

# One agent per machine, with as many one-thread processes as cores. If a worker is lost, torchrun
# starts it again; if a machine is lost, the others go on, down to one.
srun --kill-on-bad-exit=0 torchrun \
    --nnodes "1:$SLURM_NNODES" --nproc-per-node "$SLURM_CPUS_PER_TASK" --max-restarts 10 \
    --rdzv-id "$SLURM_JOB_ID" --rdzv-backend c10d --rdzv-endpoint "$first:29500" \
    -m hanme train "$graph" --batch-size 16384 --out "$out"
