create trigger mounts_added after insert on mounts
    referencing new table as added for each statement execute function agent_has_other_definitions();
