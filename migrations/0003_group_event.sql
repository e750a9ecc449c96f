-- The events that concern a group: what its pods showed while they named it, and the sessions that say something of it.
-- What is in the file already is indexed by vcd/eventlog/log_file.py.
CREATE TABLE group_event (
    group_key TEXT NOT NULL,
    sequence INTEGER NOT NULL,
    PRIMARY KEY (group_key, sequence)
) STRICT, WITHOUT ROWID;

-- The configurations, which are few among very many events.
CREATE INDEX event_policy ON event (sequence) WHERE type = 'policy';
