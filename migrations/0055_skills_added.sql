create trigger skills_added after insert on skills
    referencing new table as added for each statement execute function agent_has_other_definitions();
