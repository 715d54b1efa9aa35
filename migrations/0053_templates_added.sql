-- One table in each migration: who waits for the lock of one holds no other.
create trigger templates_added after insert on templates
    referencing new table as added for each statement execute function agent_has_other_definitions();
