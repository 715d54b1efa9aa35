-- The agents whose other definitions were added without the triggers: these have waited for all writers of that time, so their rows are
-- visible here. Replicas that use the column start after this.
update agents set only_resources = false
where only_resources and uid in (
    select agent from templates union select agent from prompts union select agent from skills union select agent from mounts
);
