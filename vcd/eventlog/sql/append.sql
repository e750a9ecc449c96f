-- name: event
INSERT INTO event (sequence, time, type, kind, key, resource_version, payload, chain)
VALUES (?, ?, ?, ?, ?, ?, ?, ?)

-- name: session
INSERT INTO session (number, sequence, head, epoch, now, policy) VALUES (?, ?, ?, ?, ?, ?)

-- name: statement
INSERT INTO statement (session, statement, group_key, action, verdict) VALUES (?, ?, ?, ?, ?)

-- name: operation
INSERT INTO operation (session, statement, operation, verb, key, node) VALUES (?, ?, ?, ?, ?, ?)

-- name: outcome
INSERT INTO outcome (sequence, session, statement, operation, result) VALUES (?, ?, ?, ?, ?)

-- name: policy
INSERT INTO policy (digest, text, sequence) VALUES (?, ?, ?)
ON CONFLICT (digest) DO UPDATE SET sequence = max(sequence, excluded.sequence)

-- name: dictionary
INSERT INTO dictionary (number, content) VALUES (?, ?)

-- name: group_event
INSERT INTO group_event (group_key, sequence) VALUES (?, ?)

-- name: session_number
INSERT INTO sqlite_sequence (name, seq) VALUES (?, ?)
