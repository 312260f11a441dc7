-- job_submit plugin: jobs that the allocator decides about arrive held, and only operators release
-- them or change their size. All other jobs are Slurm's, as before.
--
-- Put it into the folder of slurm.conf as job_submit.lua, add JobSubmitPlugins=lua to slurm.conf, and run
-- scontrol reconfigure.

-- GPU jobs of these partitions are held, whatever they say: local PARTITIONS = { a100 = true }
local PARTITIONS = {}
-- users besides root who may release jobs and change sizes: local OPERATORS = { [1001] = true }
local OPERATORS = {}

local function is_operator(uid)
  return uid == 0 or OPERATORS[uid] == true
end

local function asks_for_gpus(job)
  local asked = (job.tres_per_node or "") .. (job.tres_per_job or "")
    .. (job.tres_per_task or "") .. (job.tres_per_socket or "")
  return string.find(asked, "gpu") ~= nil
end

-- a job declares itself by {"allocator": {...}} in its comment or in its extra field
local function declares_itself(job)
  local said = (job.comment or "") .. (job.extra or "")
  return string.find(said, '"allocator"%s*:') ~= nil
end

local function is_for_allocator(job, partition_of_job, uid)
  if not asks_for_gpus(job) then return false end
  if declares_itself(job) then return true end
  if is_operator(uid) then return false end
  for partition in string.gmatch(partition_of_job or "", "[^,]+") do
    if PARTITIONS[partition] then return true end
  end
  return false
end

local function default_partition(partitions)
  for name, partition in pairs(partitions) do
    if partition.flag_default ~= 0 then return name end
  end
end

function slurm_job_submit(job, partitions, uid)
  local partition = job.partition or default_partition(partitions)
  if is_for_allocator(job, partition, uid) then
    job.priority = 0
    job.admin_comment = "allocator"
  end
  return slurm.SUCCESS
end

function slurm_job_modify(change, job, partitions, uid)
  if is_operator(uid) or string.find(job.admin_comment or "", "^allocator") == nil then
    return slurm.SUCCESS
  end
  if change.priority ~= slurm.NO_VAL or change.tres_per_node ~= nil then
    slurm.log_info("job_submit: the allocator starts job %u and sets its size", job.job_id)
    return slurm.ERROR
  end
  return slurm.SUCCESS
end

return slurm.SUCCESS
