-- Each statement is one small transaction. Events are deleted first: an interrupted run leaves only index rows that no
-- reader sees and that the next run deletes.

-- name: link
UPDATE checkpoint SET chain = (SELECT chain FROM event WHERE sequence = :cut)
WHERE sequence = :cut AND EXISTS (SELECT 1 FROM event WHERE sequence = :cut)

-- name: checkpoint_before
DELETE FROM checkpoint WHERE sequence < :cut

-- name: part
DELETE FROM checkpoint_part WHERE rowid IN (
    SELECT p.rowid FROM checkpoint_part AS p WHERE p.sequence < :cut LIMIT 4
)

-- name: lengths
SELECT sequence, coalesce(length(payload), 0) FROM event WHERE sequence <= :cut ORDER BY sequence LIMIT 1000

-- name: events
DELETE FROM event WHERE sequence <= :upto

-- name: last_session
SELECT coalesce(max(number), 0) FROM session WHERE sequence <= :cut

-- name: operation
DELETE FROM operation WHERE (session, statement, operation) IN (
    SELECT session, statement, operation FROM operation WHERE session <= :session LIMIT 2000
)

-- name: statement
DELETE FROM statement WHERE (session, statement) IN (
    SELECT session, statement FROM statement WHERE session <= :session LIMIT 2000
)

-- name: groups
SELECT max(group_key) FROM (SELECT group_key FROM group_event WHERE group_key > :after ORDER BY group_key LIMIT 2000)

-- name: group_event
DELETE FROM group_event WHERE group_key > :after AND group_key <= :upto AND sequence <= :cut

-- name: outcome
DELETE FROM outcome WHERE sequence IN (SELECT sequence FROM outcome WHERE sequence <= :cut LIMIT 2000)

-- name: session
DELETE FROM session WHERE number IN (SELECT number FROM session WHERE sequence <= :cut LIMIT 2000)

-- name: seal
DELETE FROM seal WHERE after < :cut

-- name: policy
DELETE FROM policy WHERE sequence <= :cut AND sequence < (SELECT max(sequence) FROM policy)
    AND digest NOT IN (SELECT policy FROM session)

-- name: vacuum
PRAGMA incremental_vacuum(256)

-- name: free
PRAGMA freelist_count

-- name: pages
PRAGMA page_count

-- name: page_size
PRAGMA page_size
