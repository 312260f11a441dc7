#!/bin/bash
@ABOUT@
#
# Read it, then run it as a user who may change jobs: bash slurm.sh
# It stops before any change if a job is not as it was when the plan was made. It cancels nothing.
# Exit code 0: what was asked is what runs. 1: it is not, and the lines on standard error say where.
set -u
export SLURM_TIME_FORMAT=%s SLURM_BITSTR_LEN=0
wait_s=${ALLOCATOR_WAIT_S:-180}     # seconds for checkpoints, and again for starts
faults=0
declare -A seen=() want=()
ready=() lent=()
fault() { echo "slurm.sh: $*" >&2; faults=1; }
join() { local IFS=,; echo "$*"; }
give_back() { [ ${#lent[@]} -eq 0 ] || scontrol release "$(join "${lent[@]}")"; lent=(); }
trap give_back EXIT

# a job is known by its id, state, user, time of submission and name together
expect() { [ -n "${seen[$1]:-}" ] || fault "not as it was: $1"; }

# jobs of the list that are not yet waiting again
not_waiting() { squeue -h -a -r -o '%T' -j "$1" | grep -cvx PENDING; }
await_end() {
  local end=$((SECONDS + wait_s))
  while [ "$(not_waiting "$1")" != 0 ]; do
    if [ $SECONDS -ge $end ]; then
      fault "some of the jobs $1 have not ended after $wait_s s"
      return
    fi
    sleep 1
  done
}

# change a waiting job; one whose change is refused stays held
change() {
  if scontrol update JobId="$1" "${@:2}"; then ready+=("$1")
  else fault "job $1: the change was refused; it stays held"; fi
}
release_changed() { [ ${#ready[@]} -eq 0 ] || scontrol release "$(join "${ready[@]}")" ||
  fault "some jobs could not be released"; }

# state, GPUs and nodes that every job really has; free text of users is cut out first
allocated() {
  scontrol show job -a -d -o | sed -E 's/ JobName=.* UserId=/ UserId=/' | awk '{
    id = state = nodes = task = array = ""; gpus = 0
    for (i = 1; i <= NF; i++) {
      if (id == "" && $i ~ /^JobId=/) id = substr($i, 7)
      if (array == "" && $i ~ /^ArrayJobId=/) array = substr($i, 12)
      if (task == "" && $i ~ /^ArrayTaskId=/) task = substr($i, 13)
      if (state == "" && $i ~ /^JobState=/) state = substr($i, 10)
      if (nodes == "" && $i ~ /^NodeList=/) nodes = substr($i, 10)
      if (gpus == 0 && $i ~ /^JOB_GRES=/) {
        count = split(substr($i, 10), parts, ",")
        for (k = 1; k <= count; k++) if (parts[k] ~ /^gpu/) {
          last = split(parts[k], words, ":"); gpus += words[last]
        }
      }
    }
    if (array != "") id = array "_" task
    print id, state, gpus, nodes
  }'
}
read_back() {
  local end=$((SECONDS + wait_s)) id state gpus nodes
  while :; do
    local -A has=()
    while read -r id state gpus nodes; do
      [ -n "${want[$id]:-}" ] || continue
      case $nodes in *[[]*) nodes=$(scontrol show hostnames "$nodes" | paste -sd,) ;; esac
      has[$id]="$state $gpus $nodes"
    done < <(allocated)
    local wrong=()
    for id in "${!want[@]}"; do
      case ${has[$id]:-unknown} in
        "RUNNING ${want[$id]}" | COMPLET*) ;;
        *) wrong+=("$id") ;;
      esac
    done
    [ ${#wrong[@]} -gt 0 ] && [ $SECONDS -lt $end ] || break
    sleep 1
  done
  for id in ${wrong[@]+"${wrong[@]}"}; do
    fault "job $id should be RUNNING ${want[$id]} (GPUs, nodes) and is ${has[$id]:-unknown}"
  done
}

case $(squeue --version) in *" @RELEASE@."* | *" @RELEASE@") ;; *)
  echo "slurm.sh: this is not Slurm @RELEASE@, for which the script was written" >&2; exit 1 ;;
esac
while IFS= read -r line; do seen[$line]=1; done < <(squeue -h -a -r -o '%i|%T|%U|%V|%j')
