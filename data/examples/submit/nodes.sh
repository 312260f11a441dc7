#!/bin/bash
# two nodes
#SBATCH -N 2 --gpus-per-node v100:4
#SBATCH -p v100
#SBATCH --array=0-9
python train.py
