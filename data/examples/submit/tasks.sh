#SBATCH --ntasks=3 --gpus-per-task=1 --account=team-2 --time=90
python train.py
