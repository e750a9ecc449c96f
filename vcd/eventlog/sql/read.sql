-- name: head
SELECT max(
    coalesce((SELECT max(sequence) FROM event), 0),
    coalesce((SELECT max(sequence) FROM checkpoint), 0)
)

-- name: first
SELECT min(sequence) FROM event

-- name: last_time
SELECT max(
    coalesce((SELECT time FROM event ORDER BY sequence DESC LIMIT 1), 0),
    coalesce((SELECT max(time) FROM checkpoint), 0)
)

-- name: last_session
SELECT coalesce((SELECT seq FROM sqlite_sequence WHERE name = 'session'), 0)

-- name: dictionaries
SELECT number, content FROM dictionary ORDER BY number

-- name: events
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE sequence > :after AND sequence <= :until ORDER BY sequence LIMIT :limit

-- name: columns
SELECT sequence, time, type, kind, key, resource_version FROM event ORDER BY sequence

-- name: chained
SELECT sequence, time, type, kind, key, resource_version, payload, chain FROM event ORDER BY sequence

-- name: linked
SELECT sequence, time, type, kind, key, resource_version, payload, chain FROM event
WHERE sequence > :after AND sequence <= :until ORDER BY sequence LIMIT :limit

-- name: links
SELECT chain FROM event WHERE sequence > :after ORDER BY sequence

-- name: link
SELECT coalesce(
    (SELECT chain FROM event WHERE sequence = :sequence), (SELECT chain FROM checkpoint WHERE sequence = :sequence)
)

-- name: other_links
SELECT sequence FROM checkpoint AS c JOIN event AS e USING (sequence)
WHERE c.chain IS NOT NULL AND c.chain IS NOT e.chain ORDER BY sequence

-- name: seals
SELECT after, checkpoint, time, digest FROM seal WHERE after >= :after ORDER BY after, checkpoint

-- name: events_last
SELECT sequence FROM event ORDER BY sequence DESC LIMIT :limit

-- name: events_where
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE sequence > :after AND sequence <= :until
    AND (:kind IS NULL OR kind = :kind) AND (:type IS NULL OR type = :type)
ORDER BY sequence LIMIT :limit

-- name: policies_loaded
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE type = 'policy' AND sequence > :after AND sequence <= :until ORDER BY sequence LIMIT :limit

-- name: events_concerning
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE sequence > :after AND sequence <= :until
    AND (kind IN (SELECT value FROM json_each(:kinds)) OR type IN (SELECT value FROM json_each(:types)))
ORDER BY sequence LIMIT :limit

-- name: events_of
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE key = :key AND key <> '' AND sequence > :after AND sequence <= :until
    AND (:kind IS NULL OR kind = :kind) AND (:type IS NULL OR type = :type)
ORDER BY sequence LIMIT :limit

-- name: object
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE key = :key AND key <> '' AND kind = :kind ORDER BY sequence

-- name: sessions
SELECT s.number, s.sequence, e.time, s.head, s.epoch, s.now, s.policy,
    (SELECT count(*) FROM statement AS t WHERE t.session = s.number),
    (SELECT count(*) FROM operation AS o WHERE o.session = s.number)
FROM session AS s JOIN event AS e ON e.sequence = s.sequence
WHERE s.number > :after AND s.number <= :last ORDER BY s.number LIMIT :limit

-- name: session
SELECT sequence FROM session WHERE number = :number

-- name: pods_of
SELECT DISTINCT e.key FROM group_event AS g JOIN event AS e ON e.sequence = g.sequence
WHERE g.group_key = :group AND g.sequence > :after AND g.sequence <= :until AND e.type = 'put' ORDER BY e.key

-- name: sessions_of
SELECT e.sequence, e.time, e.type, e.kind, e.key, e.resource_version, e.payload
FROM group_event AS g JOIN event AS e ON e.sequence = g.sequence
WHERE g.group_key = :group AND g.sequence > :after AND g.sequence <= :until AND e.type = 'session'
ORDER BY g.sequence LIMIT :limit

-- name: session_events_of
SELECT g.sequence FROM group_event AS g JOIN event AS e ON e.sequence = g.sequence
WHERE g.group_key = :group AND g.sequence <= :until AND e.type = 'session'

-- name: group_events
SELECT group_key, sequence FROM group_event WHERE sequence >= :first

-- name: unindexed
SELECT sequence, time, type, kind, key, resource_version, payload FROM event
WHERE (kind = 'Pod' AND type = 'put') OR sequence IN (SELECT sequence FROM session) ORDER BY sequence

-- name: decided_of
SELECT s.sequence FROM operation AS o JOIN session AS s ON s.number = o.session WHERE o.key = :key
UNION
SELECT u.sequence FROM operation AS o
    JOIN outcome AS u ON u.session = o.session AND u.statement = o.statement AND u.operation = o.operation
WHERE o.key = :key
ORDER BY 1

-- name: session_numbers
SELECT number, sequence FROM session WHERE sequence <= :until ORDER BY sequence

-- name: session_at
SELECT max(number) FROM session WHERE now <= :now

-- name: session_before
SELECT coalesce(
    (SELECT max(number) FROM session WHERE sequence <= :at), (SELECT min(number) - 1 FROM session WHERE sequence > :at),
    (SELECT seq FROM sqlite_sequence WHERE name = 'session'), 0
)

-- name: session_after
SELECT min(number) FROM session WHERE now >= :now

-- name: operations_of
SELECT s.number, s.sequence, e.time, o.statement, o.operation, t.group_key, t.action, t.verdict, o.verb, o.key, o.node,
    (SELECT u.result FROM outcome AS u
     WHERE u.session = o.session AND u.statement = o.statement AND u.operation = o.operation
     ORDER BY u.sequence DESC LIMIT 1)
FROM operation AS o JOIN statement AS t ON t.session = o.session AND t.statement = o.statement
    JOIN session AS s ON s.number = o.session JOIN event AS e ON e.sequence = s.sequence
WHERE o.key = :key ORDER BY o.session, o.statement, o.operation

-- name: served
SELECT key FROM operation
WHERE session >= :first AND session <= :last AND verb = 'bind' AND (session, statement) NOT IN (
    SELECT session, statement FROM statement
    WHERE session >= :first AND session <= :last AND verdict <> 'accepted'
)

-- name: served_at
SELECT o.key, max(t.session) FROM statement AS t
    JOIN operation AS o ON o.session = t.session AND o.statement = t.statement
WHERE t.session >= :first AND t.session < :before AND t.verdict = 'accepted' AND o.verb = 'bind' GROUP BY o.key

-- name: served_in
SELECT min(t.session) FROM statement AS t JOIN operation AS o ON o.session = t.session AND o.statement = t.statement
WHERE t.group_key = :group AND t.session >= :first AND t.verdict = 'accepted' AND o.verb = 'bind'

-- name: served_there
SELECT DISTINCT t.group_key, o.node FROM statement AS t
    JOIN operation AS o ON o.session = t.session AND o.statement = t.statement
WHERE t.session >= :first AND t.session <= :last AND t.verdict = 'accepted' AND o.verb = 'bind'

-- name: policy
SELECT text FROM policy WHERE digest = :digest

-- name: policies
SELECT digest, text, sequence FROM policy ORDER BY digest

-- name: missing_policies
SELECT DISTINCT policy FROM session WHERE policy NOT IN (SELECT digest FROM policy) ORDER BY policy

-- name: checkpoints
SELECT sequence, time, size, parts, digest FROM checkpoint ORDER BY sequence

-- name: checkpoint_parts
SELECT part, data FROM checkpoint_part WHERE sequence = :sequence ORDER BY part

-- name: statements
SELECT session, statement, group_key, action, verdict FROM statement WHERE session = :session ORDER BY statement

-- name: operations
SELECT session, statement, operation, verb, key, node FROM operation WHERE session = :session ORDER BY statement, operation

-- name: session_row
SELECT number, sequence, head, epoch, now, policy FROM session WHERE number = :session

-- name: outcome_row
SELECT sequence, session, statement, operation, result FROM outcome WHERE sequence = :sequence

-- name: counts
WITH kept AS (
    SELECT coalesce((SELECT min(number) FROM session WHERE sequence >= :first),
        (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'session'), 0) AS session
)
SELECT (SELECT count(*) FROM session WHERE sequence >= :first),
    (SELECT count(*) FROM statement, kept WHERE statement.session >= kept.session),
    (SELECT count(*) FROM operation, kept WHERE operation.session >= kept.session),
    (SELECT count(*) FROM outcome WHERE sequence >= :first)

-- name: stray_outcomes
SELECT u.sequence, u.session, u.statement, u.operation FROM outcome AS u
LEFT JOIN operation AS o ON o.session = u.session AND o.statement = u.statement AND o.operation = u.operation
WHERE o.key IS NULL AND u.sequence >= :first
    AND u.session >= coalesce((SELECT min(number) FROM session WHERE sequence >= :first),
        (SELECT seq + 1 FROM sqlite_sequence WHERE name = 'session'), 0)
ORDER BY u.sequence
