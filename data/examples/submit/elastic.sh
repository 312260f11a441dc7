#!/bin/sh
#SBATCH -J elastic
#SBATCH --gpus-per-node=2 -t 30:00 --partition=v100,a100
#SBATCH --comment='{"allocator": {"model": "bert", "min_gpus": 1, "max_gpus": 8, "total_work": 9000}}'
python train.py
