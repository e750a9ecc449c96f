-- Each section named by a number reverts the migration of that number.

-- name: 3
DROP INDEX event_policy;
DROP TABLE group_event;

-- name: 2
ALTER TABLE event DROP COLUMN chain;
ALTER TABLE checkpoint DROP COLUMN chain;
ALTER TABLE segment DROP COLUMN chained;
DROP TABLE seal;
CREATE TABLE session_group (
    group_key TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (group_key, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_group_session ON session_group (session);

-- name: session_group
INSERT INTO session_group (group_key, session) VALUES (?, ?)

-- name: checkpoint
UPDATE checkpoint SET size = ?, parts = ?, digest = ? WHERE sequence = ?

-- name: parts
DELETE FROM checkpoint_part WHERE sequence = ?

-- name: remove
DELETE FROM checkpoint WHERE sequence = ?
