-- The queue of Nightsweep, schema 4: the tables. Applied in one transaction with views.sql, which
-- has what people look at and write to: the views `batches` and `jobs`, the tables `inbox` and
-- `control`. Their columns are kept; the other tables may change with the schema version (PRAGMA
-- user_version).
--
-- All times are milliseconds since 1970 UTC. A yes or no is 1 or 0.

-- Facts about the file.
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,  -- 'created_ms'
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

-- Names of models, once each: a path in every job and index entry would double the file.
CREATE TABLE model (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE  -- file or name; '' for jobs that name none
) STRICT;

CREATE TABLE batch (
  id                INTEGER PRIMARY KEY AUTOINCREMENT,  -- in order of submission
  public_id         TEXT    NOT NULL UNIQUE,            -- 'batch_...', what people see and type
  key               TEXT,     -- names content, model and parameters; NULL: none
  idempotency_key   TEXT,     -- the submitter's own name for this submission; NULL: none
  content           TEXT,     -- hash of lines and parameters, to notice the same ones again
  name              TEXT    NOT NULL,  -- the file's name
  model             TEXT    NOT NULL,  -- as given at submission; '' when only the lines say
  endpoint          TEXT    NOT NULL,  -- '/v1/chat/completions', ..., or 'mixed'
  options           TEXT    NOT NULL,  -- JSON of what was set on the command line
  priority          INTEGER NOT NULL,  -- higher goes first
  status            TEXT    NOT NULL,  -- of OpenAI's Batch object; 'finalizing' while it expires
  created_ms        INTEGER NOT NULL,
  started_ms        INTEGER,  -- first claim
  served_ms         INTEGER,  -- last claim: what waits longer goes before its equals
  cancelling_ms     INTEGER,  -- cancel was asked for
  expires_ms        INTEGER,  -- what is unfinished then expires; NULL: never
  ended_ms          INTEGER,  -- completed, failed, cancelled or expired
  -- On its way in (status 'validating') or out, in slices: nobody sees it and it counts nowhere.
  is_hidden         INTEGER NOT NULL DEFAULT 0,
  -- Counters, so that status need not count a million jobs. Kept by the triggers of views.sql.
  n_total           INTEGER NOT NULL,
  n_running         INTEGER NOT NULL DEFAULT 0,
  n_completed       INTEGER NOT NULL DEFAULT 0,
  n_failed          INTEGER NOT NULL DEFAULT 0,  -- also cancelled and expired ones
  prompt_tokens     INTEGER NOT NULL DEFAULT 0,
  completion_tokens INTEGER NOT NULL DEFAULT 0,
  CHECK (status IN ('validating', 'in_progress', 'finalizing', 'completed', 'failed',
                    'cancelling', 'cancelled', 'expired')),
  CHECK (n_running >= 0 AND n_completed >= 0 AND n_failed >= 0
         AND n_running + n_completed + n_failed <= n_total)
) STRICT;

-- The same key is the same batch, until that batch is cancelled.
CREATE UNIQUE INDEX batch_by_key ON batch (key)
  WHERE key IS NOT NULL AND status NOT IN ('cancelling', 'cancelled');
CREATE UNIQUE INDEX batch_by_idempotency_key ON batch (idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX batch_by_content ON batch (content) WHERE content IS NOT NULL;
CREATE INDEX batch_open ON batch (priority) WHERE ended_ms IS NULL;
CREATE INDEX batch_hidden ON batch (id) WHERE is_hidden = 1;

-- One line of a file. Bodies are apart (`request`, `result`), so that a claim reads few pages.
CREATE TABLE job (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,  -- in a batch, in order of lines; never used again
  batch       INTEGER NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
  line        INTEGER NOT NULL,  -- of the file, from 1
  custom_id   TEXT    NOT NULL,
  model       INTEGER NOT NULL REFERENCES model (id),
  state       TEXT    NOT NULL DEFAULT 'waiting',
  attempt     INTEGER NOT NULL DEFAULT 0,  -- counted at claim; given back where nobody is to blame
  -- Who is to blame when a worker dies (sqlite_recovery.cc). A token that is saved clears all four.
  strikes       INTEGER NOT NULL DEFAULT 0,  -- deaths while its claim had gained nothing
  alone_strikes INTEGER NOT NULL DEFAULT 0,  -- those of them when nothing else ran
  group_limit   INTEGER,  -- a suspect: claim it with other suspects only, so many; NULL: it is none
  runs_alone    INTEGER NOT NULL DEFAULT 0,  -- this claim: nothing else runs
  cancel_ms     INTEGER,  -- cancel of this job alone was asked for; NULL once it has ended
  -- Prompt and answer as expected at submission, in units of 64 tokens. Of a batch the longest go
  -- first: what is left for the end is short.
  length        INTEGER NOT NULL DEFAULT 0,
  -- Set while it runs. (owner, claim_group, attempt) is what a worker's write must name.
  owner       INTEGER,  -- worker.id; no foreign key: deleting a worker would scan all jobs
  claim_group INTEGER,  -- number of the owner's claim: jobs that were handed out together
  started_ms  INTEGER,  -- last claim
  finished_ms INTEGER,
  -- Not IN: of a longer list SQLite builds a table in memory each time.
  CHECK (state = 'waiting' OR state = 'running' OR state = 'completed' OR state = 'failed'
         OR state = 'cancelled' OR state = 'expired'),
  CHECK ((state = 'running') = (owner IS NOT NULL)),
  CHECK ((state = 'running') = (claim_group IS NOT NULL)),
  CHECK ((state = 'waiting' OR state = 'running') = (finished_ms IS NULL)),
  CHECK (attempt >= 0 AND strikes >= 0)
) STRICT;

CREATE UNIQUE INDEX job_by_line ON job (batch, line);
CREATE UNIQUE INDEX job_by_custom_id ON job (batch, custom_id);
-- Both end in the job's id, as every index does: oldest first.
CREATE INDEX job_waiting ON job (batch, model, length DESC)
  WHERE state = 'waiting' AND group_limit IS NULL;
CREATE INDEX job_suspect ON job (group_limit) WHERE state = 'waiting' AND group_limit IS NOT NULL;
CREATE INDEX job_cancelled ON job (cancel_ms) WHERE cancel_ms IS NOT NULL;
CREATE INDEX job_running ON job (owner, claim_group) WHERE state = 'running';

CREATE TABLE request (
  job  INTEGER PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,
  body TEXT NOT NULL  -- JSON: the request with everything that decides its answer
) STRICT;

-- How far an unfinished answer has come.
CREATE TABLE checkpoint (
  job         INTEGER PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,
  identity    TEXT    NOT NULL,  -- model, backend and kernels; under another the answer starts again
  data        BLOB    NOT NULL,
  owner       INTEGER NOT NULL,  -- with claim_group: the claim that wrote it
  claim_group INTEGER NOT NULL,
  saved_ms    INTEGER NOT NULL
) STRICT;

-- One row for each finished job, appended as they finish.
CREATE TABLE result (
  sequence          INTEGER PRIMARY KEY AUTOINCREMENT,  -- order of finishing over all batches
  job               INTEGER NOT NULL UNIQUE REFERENCES job (id) ON DELETE CASCADE,
  batch             INTEGER NOT NULL,  -- with line: the job's, so that paging meets finished jobs only
  line              INTEGER NOT NULL,
  status_code       INTEGER NOT NULL,
  body              TEXT,     -- JSON of the response body; NULL when the job was lost
  nightsweep        TEXT,     -- JSON of timings and cost
  error_code        TEXT,     -- 'cancelled', 'expired', 'quarantined'; NULL: answer or refusal
  error_message     TEXT,
  prompt_tokens     INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX result_by_line ON result (batch, line);
CREATE INDEX result_by_batch ON result (batch);

-- Claims of a living worker in which something was gained: a token or a result that was saved. A
-- death of that worker is no strike for what ran in them.
CREATE TABLE gain (
  owner       INTEGER NOT NULL,
  claim_group INTEGER NOT NULL,
  PRIMARY KEY (owner, claim_group)
) STRICT, WITHOUT ROWID;

-- Workers that have served this queue, the last hundred. The newest may be alive: that is decided
-- by the lock on PATH.lock, not here.
CREATE TABLE worker (
  id         INTEGER PRIMARY KEY AUTOINCREMENT,
  pid        INTEGER NOT NULL,
  host       TEXT    NOT NULL,
  boot_id    TEXT    NOT NULL,  -- of the kernel: another one means a reboot, which is no job's fault
  model      TEXT    NOT NULL,
  device     TEXT    NOT NULL,
  started_ms INTEGER NOT NULL,
  seen_ms    INTEGER NOT NULL,  -- last report of progress
  ended_ms   INTEGER,           -- an orderly end; NULL: running, or it died
  progress   TEXT               -- JSON
) STRICT;

-- What the sweeps of some seconds did, for `status` and the view `sweeps`. `prune` takes old rows,
-- and the start of a worker all but the newest 300,000.
CREATE TABLE sweep (
  id             INTEGER PRIMARY KEY AUTOINCREMENT,
  model          TEXT    NOT NULL,  -- file
  begin_ms       INTEGER NOT NULL,
  end_ms         INTEGER NOT NULL,
  n_sweeps       INTEGER NOT NULL,
  prefill_tokens INTEGER NOT NULL,  -- with decode_tokens: rows
  decode_tokens  INTEGER NOT NULL,
  new_tokens     INTEGER NOT NULL,  -- generated; the first of an answer comes of its prompt
  shared_tokens  INTEGER NOT NULL,  -- of prompts, not computed: another one begins alike
  evictions      INTEGER NOT NULL,
  -- Weights by tier.
  resident_bytes INTEGER NOT NULL,  -- used where they stood in the device's memory
  link_bytes     INTEGER NOT NULL,  -- copied from the host's memory into the device's
  disk_bytes     INTEGER NOT NULL,  -- read from the disk
  sweep_s        REAL    NOT NULL,  -- in sweeps
  queue_s        REAL    NOT NULL,  -- in transactions of the queue
  -- Each stage's wait for the one before it, and for room in the one behind.
  wait_s         REAL    NOT NULL,  -- operators, for weights
  link_wait_s    REAL    NOT NULL,  -- copies into the device, for data from the disk
  ring_wait_s    REAL    NOT NULL,  -- the same, for room in the device's ring
  disk_busy_s    REAL    NOT NULL,  -- time with a read in flight
  link_share     REAL,              -- of the measured rate; NULL: nothing passed it
  disk_share     REAL,
  binding        TEXT    NOT NULL,  -- 'link', 'disk', or 'device': neither was half busy
  energy_j       REAL               -- NULL: not measured
) STRICT;
CREATE INDEX sweep_by_end ON sweep (end_ms);

-- ---- for people: see views.sql ----

-- Lines on their way in by SQL. The worker takes them within a second or two: those of one name
-- that are there together become one batch of that name. A bad line gets an error result.
CREATE TABLE inbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,  -- in order of lines
  batch    TEXT    NOT NULL DEFAULT 'inbox',   -- a name for the batch
  line     TEXT    NOT NULL,                   -- as in an input file: {"prompt": ...}
  model    TEXT    NOT NULL DEFAULT '',        -- file or name; '': as the line says
  priority INTEGER NOT NULL DEFAULT 0
) STRICT;

-- One row: what the worker is told to do.
CREATE TABLE control (
  id               INTEGER PRIMARY KEY CHECK (id = 1),
  is_paused        INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1)),
  run_now_until_ms INTEGER  -- till then the worker's windows do not matter; NULL: they do
) STRICT;
INSERT INTO control (id) VALUES (1);
