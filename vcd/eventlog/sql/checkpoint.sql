-- name: part
INSERT INTO checkpoint_part (sequence, part, data) VALUES (?, ?, ?)

-- name: complete
INSERT INTO checkpoint (sequence, time, size, parts, digest, chain) VALUES (?, ?, ?, ?, ?, ?)

-- name: seal
INSERT INTO seal (after, checkpoint, time, digest) VALUES (?, ?, ?, ?)

-- name: exists
SELECT count(*) FROM checkpoint WHERE sequence = ?

-- name: clear
DELETE FROM checkpoint_part WHERE sequence NOT IN (SELECT sequence FROM checkpoint)
