-- The link of each event covers all earlier events, so that changed, missing and exchanged events are found; see
-- vcd/eventlog/chain.py. NULL in rows that a version without a chain wrote.
ALTER TABLE event ADD COLUMN chain BLOB;

-- The link of the event at the checkpoint's sequence after that event was removed: the chain begins with it.
ALTER TABLE checkpoint ADD COLUMN chain BLOB;

-- The digests of all checkpoints. The next event's link covers them, so the chain protects their states, too.
CREATE TABLE seal (
    after INTEGER NOT NULL, -- the last event when the checkpoint was kept
    checkpoint INTEGER NOT NULL,
    time INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (after, checkpoint)
) STRICT, WITHOUT ROWID;

-- Whether the next event's link covers the segment. It does not if an export begins in the middle of one.
ALTER TABLE segment ADD COLUMN chained INTEGER NOT NULL DEFAULT 0 CHECK (chained IN (0, 1));

-- No version uses this table any more.
DROP TABLE session_group;
