-- Delete everything after event :to, in one transaction; :base is the checkpoint that the history begins with.

-- name: session_before
SELECT coalesce(
    (SELECT max(number) FROM session WHERE sequence <= :to), (SELECT min(number) - 1 FROM session WHERE sequence > :to)
)

-- name: statement
DELETE FROM statement WHERE session IN (SELECT number FROM session WHERE sequence > :to)

-- name: operation
DELETE FROM operation WHERE session IN (SELECT number FROM session WHERE sequence > :to)

-- name: session
DELETE FROM session WHERE sequence > :to

-- name: outcome
DELETE FROM outcome WHERE sequence > :to

-- name: group_event
DELETE FROM group_event WHERE sequence > :to

-- name: checkpoint
DELETE FROM checkpoint WHERE sequence <> :base
    AND (sequence > :to OR sequence IN (SELECT checkpoint FROM seal WHERE after >= :to))

-- name: part
DELETE FROM checkpoint_part WHERE sequence NOT IN (SELECT sequence FROM checkpoint)

-- name: seal
DELETE FROM seal WHERE after >= :to

-- name: event
DELETE FROM event WHERE sequence > :to

-- name: number
UPDATE sqlite_sequence SET seq = :number WHERE name = 'session'

-- name: policy
UPDATE policy SET sequence = :sequence WHERE digest = :digest

-- name: policy_of_none
DELETE FROM policy WHERE sequence > :to AND digest NOT IN (SELECT policy FROM session)

-- name: policy_of_before
UPDATE policy SET sequence = :base WHERE sequence > :to
