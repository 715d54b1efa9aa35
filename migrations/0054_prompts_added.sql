create trigger prompts_added after insert on prompts
    referencing new table as added for each statement execute function agent_has_other_definitions();
