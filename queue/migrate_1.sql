-- From schema 1 to 2. Views and triggers are dropped before and made anew after.
DROP INDEX job_waiting;
DROP INDEX job_waiting_by_batch;
DROP INDEX job_waiting_by_model;

ALTER TABLE batch ADD COLUMN content TEXT;
ALTER TABLE batch ADD COLUMN served_ms INTEGER;
ALTER TABLE batch ADD COLUMN is_pruned INTEGER NOT NULL DEFAULT 0;
-- All that is known of a batch is checked before it is queued.
UPDATE batch SET status = 'in_progress' WHERE status = 'validating';
CREATE INDEX batch_by_content ON batch (content) WHERE content IS NOT NULL;
CREATE INDEX batch_open ON batch (priority) WHERE ended_ms IS NULL;
CREATE INDEX batch_pruned ON batch (id) WHERE is_pruned = 1;

-- The batch's priority holds.
ALTER TABLE job DROP COLUMN priority;
ALTER TABLE job ADD COLUMN alone_strikes INTEGER NOT NULL DEFAULT 0;
ALTER TABLE job ADD COLUMN runs_alone INTEGER NOT NULL DEFAULT 0;
CREATE INDEX job_waiting ON job (batch, model) WHERE state = 'waiting' AND group_limit IS NULL;
CREATE INDEX job_suspect ON job (group_limit) WHERE state = 'waiting' AND group_limit IS NOT NULL;
CREATE INDEX job_cancelled ON job (cancel_ms) WHERE cancel_ms IS NOT NULL;

CREATE TABLE gain (
  owner       INTEGER NOT NULL,
  claim_group INTEGER NOT NULL,
  PRIMARY KEY (owner, claim_group)
) STRICT, WITHOUT ROWID;
INSERT INTO gain (owner, claim_group)
  SELECT DISTINCT job.owner, job.claim_group FROM job JOIN checkpoint
    ON checkpoint.job = job.id AND checkpoint.owner = job.owner
   AND checkpoint.claim_group = job.claim_group
  WHERE state = 'running';

CREATE TABLE inbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,
  batch    TEXT    NOT NULL DEFAULT 'inbox',
  line     TEXT    NOT NULL,
  model    TEXT    NOT NULL DEFAULT '',
  priority INTEGER NOT NULL DEFAULT 0
) STRICT;
CREATE TABLE control (
  id               INTEGER PRIMARY KEY CHECK (id = 1),
  is_paused        INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1)),
  run_now_until_ms INTEGER
) STRICT;
INSERT INTO control (id) VALUES (1);
