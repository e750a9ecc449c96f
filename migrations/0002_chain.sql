-- What joins each event to all before it, so that a changed, missing or exchanged one is found: vcd/eventlog/chain.py.
-- NULL in rows written before there was a chain.
ALTER TABLE event ADD COLUMN chain BLOB;

-- The link of the event at the checkpoint's sequence, once that event is in the file no more: the chain begins with it.
ALTER TABLE checkpoint ADD COLUMN chain BLOB;

-- The checkpoints, each as it was kept: part of the next event's link, so that the chain holds their states, too.
CREATE TABLE seal (
    after INTEGER NOT NULL, -- the last event when the checkpoint was kept
    checkpoint INTEGER NOT NULL,
    time INTEGER NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (after, checkpoint)
) STRICT, WITHOUT ROWID;

-- Whether a segment is part of the next event's link. It is not where an export begins in the middle of one.
ALTER TABLE segment ADD COLUMN chained INTEGER NOT NULL DEFAULT 0 CHECK (chained IN (0, 1));

-- Written and read by nobody.
DROP TABLE session_group;
