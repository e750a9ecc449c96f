-- All observations, decisions and outcomes, in the order in which they entered the state.
-- ``type`` is the event's tag. ``payload`` is NULL if the other columns are sufficient; vcd/eventlog/packing.py
-- describes how it is packed.
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY,
    time INTEGER NOT NULL, -- nanoseconds since the epoch, never less than before, but where a segment begins
    type TEXT NOT NULL,
    kind TEXT NOT NULL,
    key TEXT NOT NULL,
    resource_version TEXT NOT NULL,
    payload BLOB
) STRICT;
CREATE INDEX event_object ON event (key, kind) WHERE key <> '';

-- The compression dictionaries for the packed payloads of this file.
CREATE TABLE dictionary (
    number INTEGER PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;

-- The configurations that were in force. They are retained while a session names them, even if their event is removed.
CREATE TABLE policy (
    digest TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    sequence INTEGER NOT NULL -- of the event that loaded it last
) STRICT, WITHOUT ROWID;

-- Indexes of the session events. The payload of the event has the whole record of a session.
-- With AUTOINCREMENT the last number is known even after its row was removed.
CREATE TABLE session (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    sequence INTEGER NOT NULL UNIQUE,
    head INTEGER NOT NULL,
    epoch INTEGER NOT NULL,
    now INTEGER NOT NULL,
    policy TEXT NOT NULL
) STRICT;
CREATE TABLE statement (
    session INTEGER NOT NULL,
    statement INTEGER NOT NULL,
    group_key TEXT NOT NULL,
    action TEXT NOT NULL,
    verdict TEXT NOT NULL,
    PRIMARY KEY (session, statement)
) STRICT, WITHOUT ROWID;
CREATE TABLE operation (
    session INTEGER NOT NULL,
    statement INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    verb TEXT NOT NULL,
    key TEXT NOT NULL,
    node TEXT NOT NULL,
    PRIMARY KEY (session, statement, operation)
) STRICT, WITHOUT ROWID;
CREATE INDEX operation_key ON operation (key);
-- The groups that a session acted on, or whose status it set.
CREATE TABLE session_group (
    group_key TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (group_key, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_group_session ON session_group (session);

-- The outcomes of operations; ``sequence`` is that of the outcome's event.
CREATE TABLE outcome (
    sequence INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    statement INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT;
CREATE INDEX outcome_operation ON outcome (session, statement, operation);

-- The state at a sequence. The row is written after the last part: parts without a row are ignored.
CREATE TABLE checkpoint (
    sequence INTEGER PRIMARY KEY,
    time INTEGER NOT NULL,
    size INTEGER NOT NULL, -- bytes of the state
    parts INTEGER NOT NULL,
    digest BLOB NOT NULL -- BLAKE2b, 16 bytes, of the state
) STRICT;
CREATE TABLE checkpoint_part (
    sequence INTEGER NOT NULL,
    part INTEGER NOT NULL,
    data BLOB NOT NULL,
    PRIMARY KEY (sequence, part)
) STRICT;

-- Positions after which the history of another replica continues (``vcd log import``). There the state is folded again
-- from the checkpoint at ``sequence``, or from an empty state. The events up to ``live`` only rebuild that replica's
-- state at its takeover; their sessions and outcomes are not indexed.
CREATE TABLE segment (
    sequence INTEGER PRIMARY KEY,
    live INTEGER NOT NULL,
    source TEXT NOT NULL
) STRICT;
