-- From schema 2 to 3. Views and triggers are dropped before and made anew after.
-- Jobs that wait keep the order of their lines: nobody knows their length.
ALTER TABLE job ADD COLUMN length INTEGER NOT NULL DEFAULT 0;
DROP INDEX job_waiting;
CREATE INDEX job_waiting ON job (batch, model, length DESC)
  WHERE state = 'waiting' AND group_limit IS NULL;

CREATE TABLE sweep (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  model          TEXT    NOT NULL,
  begin_ms       INTEGER NOT NULL,
  end_ms         INTEGER NOT NULL,
  n_sweeps       INTEGER NOT NULL,
  prefill_tokens INTEGER NOT NULL,
  decode_tokens  INTEGER NOT NULL,
  new_tokens     INTEGER NOT NULL,
  shared_tokens  INTEGER NOT NULL,
  evictions      INTEGER NOT NULL,
  resident_bytes INTEGER NOT NULL,
  link_bytes     INTEGER NOT NULL,
  disk_bytes     INTEGER NOT NULL,
  sweep_s        REAL    NOT NULL,
  queue_s        REAL    NOT NULL,
  wait_s         REAL    NOT NULL,
  link_wait_s    REAL    NOT NULL,
  ring_wait_s    REAL    NOT NULL,
  disk_busy_s    REAL    NOT NULL,
  link_share     REAL,
  disk_share     REAL,
  binding        TEXT    NOT NULL,
  energy_j       REAL
) STRICT;
CREATE INDEX sweep_by_end ON sweep (end_ms);
