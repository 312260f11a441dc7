easy rec 43.2 sim 31.0 (-28.2 %) mean abs 20.9
conservative rec 43.2 sim 41.1 (-4.8 %) mean abs 19.2
slurm rec 43.2 sim 26.7 (-38.3 %) mean abs 24.9
