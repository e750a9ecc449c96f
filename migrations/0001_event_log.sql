-- Everything the scheduler saw and decided, in the order in which it entered the state.
-- ``type`` is the event's tag. ``payload`` is NULL where the other columns say all; how its bytes are packed is in
-- vcd/eventlog/packing.py.
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

-- The compression dictionaries that the packed payloads of this file refer to.
CREATE TABLE dictionary (
    number INTEGER PRIMARY KEY,
    content BLOB NOT NULL
) STRICT;

-- The configurations that were in force; kept while a session names them, however old their event is.
CREATE TABLE policy (
    digest TEXT PRIMARY KEY,
    text TEXT NOT NULL,
    sequence INTEGER NOT NULL -- of the event that loaded it last
) STRICT, WITHOUT ROWID;

-- Indexes into the session events: the whole record of a session is the payload of its event.
-- AUTOINCREMENT remembers the last number even after its row is gone.
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
-- The groups that a session acted for, or set the status of.
CREATE TABLE session_group (
    group_key TEXT NOT NULL,
    session INTEGER NOT NULL,
    PRIMARY KEY (group_key, session)
) STRICT, WITHOUT ROWID;
CREATE INDEX session_group_session ON session_group (session);

-- What became of operations; ``sequence`` is that of the event that says so.
CREATE TABLE outcome (
    sequence INTEGER PRIMARY KEY,
    session INTEGER NOT NULL,
    statement INTEGER NOT NULL,
    operation INTEGER NOT NULL,
    result TEXT NOT NULL
) STRICT;
CREATE INDEX outcome_operation ON outcome (session, statement, operation);

-- The state as of a sequence. Its row is written after its last part: parts without a row are of no account.
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

-- Where the history of another replica takes over (``vcd log import``): the state is folded anew from the checkpoint
-- at ``sequence``, or from nothing. The events up to ``live`` only rebuild what that replica knew when it took over;
-- their sessions and outcomes are not indexed here.
CREATE TABLE segment (
    sequence INTEGER PRIMARY KEY,
    live INTEGER NOT NULL,
    source TEXT NOT NULL
) STRICT;
