-- The events that concern a group: observations of pods that name it, and sessions whose plan mentions it.
-- vcd/eventlog/log_file.py indexes the existing events.
CREATE TABLE group_event (
    group_key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (group_key, sequence)
) STRICT, WITHOUT ROWID;

-- Finds the few events of configurations among many events.
CREATE INDEX event_policy ON event (sequence) WHERE type = 'policy';
