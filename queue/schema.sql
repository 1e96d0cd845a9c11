-- The queue of Nightsweep, schema 1. Applied in one transaction; read it to query the file.
--
-- Look through the views `batches` and `jobs` at the end: their columns are kept. The tables may
-- change with the schema version (PRAGMA user_version). Do not write to the tables by hand: the
-- counters of `batch` are kept by the program, in the transactions that change its jobs.
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
  name              TEXT    NOT NULL,  -- the file's name
  model             TEXT    NOT NULL,  -- as given at submission; '' when only the lines say
  endpoint          TEXT    NOT NULL,  -- '/v1/chat/completions', ..., or 'mixed'
  options           TEXT    NOT NULL,  -- JSON of what was set on the command line
  priority          INTEGER NOT NULL,  -- higher goes first; copied to its jobs
  status            TEXT    NOT NULL,  -- of OpenAI's Batch object; 'validating' until the first claim
  created_ms        INTEGER NOT NULL,
  started_ms        INTEGER,  -- first claim
  cancelling_ms     INTEGER,  -- cancel was asked for
  expires_ms        INTEGER,  -- what is unfinished then expires; NULL: never
  ended_ms          INTEGER,  -- completed, failed, cancelled or expired
  -- Counters, so that status need not count a million jobs.
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

-- One line of a file. Bodies are apart (`request`, `result`), so that a claim reads few pages.
CREATE TABLE job (
  id          INTEGER PRIMARY KEY AUTOINCREMENT,  -- in a batch, in order of lines; never used again
  batch       INTEGER NOT NULL REFERENCES batch (id) ON DELETE CASCADE,
  line        INTEGER NOT NULL,  -- of the file, from 1
  custom_id   TEXT    NOT NULL,
  model       INTEGER NOT NULL REFERENCES model (id),
  priority    INTEGER NOT NULL,
  state       TEXT    NOT NULL DEFAULT 'waiting',
  attempt     INTEGER NOT NULL DEFAULT 0,  -- counted at claim; given back where nobody is to blame
  strikes     INTEGER NOT NULL DEFAULT 0,  -- worker deaths while it ran in a claim without progress
  group_limit INTEGER,  -- claim it with at most so many others (isolating a poison); NULL: any
  cancel_ms   INTEGER,  -- cancel of this job alone was asked for
  -- Set while it runs. (owner, claim_group, attempt) is what a worker's write must name.
  owner       INTEGER,  -- worker.id; no foreign key: deleting a worker would scan all jobs
  claim_group INTEGER,  -- number of the owner's claim: jobs that were handed out together
  started_ms  INTEGER,  -- last claim
  finished_ms INTEGER,
  CHECK (state IN ('waiting', 'running', 'completed', 'failed', 'cancelled', 'expired')),
  CHECK ((state = 'running') = (owner IS NOT NULL)),
  CHECK ((state = 'running') = (claim_group IS NOT NULL)),
  CHECK ((state IN ('waiting', 'running')) = (finished_ms IS NULL)),
  CHECK (attempt >= 0 AND strikes >= 0)
) STRICT;

CREATE UNIQUE INDEX job_by_line ON job (batch, line);
CREATE UNIQUE INDEX job_by_custom_id ON job (batch, custom_id);
-- The three ways to claim. Each ends in the job's id, as every index does: oldest first.
CREATE INDEX job_waiting ON job (priority DESC) WHERE state = 'waiting';
CREATE INDEX job_waiting_by_batch ON job (batch, priority DESC) WHERE state = 'waiting';
CREATE INDEX job_waiting_by_model ON job (model, priority DESC) WHERE state = 'waiting';
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
  error_code        TEXT,     -- 'cancelled', 'expired', 'lost'; NULL for answers and refusals
  error_message     TEXT,
  prompt_tokens     INTEGER NOT NULL,
  completion_tokens INTEGER NOT NULL
) STRICT;

CREATE UNIQUE INDEX result_by_line ON result (batch, line);
CREATE INDEX result_by_batch ON result (batch);

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

-- ---- for people ----

CREATE VIEW batches AS
SELECT
  public_id AS id, name, status, nullif(model, '') AS model, endpoint, priority,
  n_total AS total, n_completed AS completed, n_failed AS failed, n_running AS running,
  n_total - n_completed - n_failed - n_running AS waiting,
  prompt_tokens, completion_tokens,
  strftime('%Y-%m-%dT%H:%M:%fZ', created_ms / 1000.0, 'unixepoch') AS created_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', started_ms / 1000.0, 'unixepoch') AS started_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', ended_ms / 1000.0, 'unixepoch') AS ended_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', expires_ms / 1000.0, 'unixepoch') AS expires_at,
  created_ms, started_ms, ended_ms, expires_ms, options
FROM batch;

CREATE VIEW jobs AS
SELECT
  job.id AS id, batch.public_id AS batch_id, job.line AS line, job.custom_id AS custom_id,
  job.state AS status, nullif(model.name, '') AS model, job.priority AS priority,
  job.attempt AS attempt, job.strikes AS strikes,
  result.status_code AS status_code, result.error_code AS error_code,
  -- A refused request has its message inside the response, as OpenAI sends it.
  coalesce(result.error_message,
           CASE WHEN result.status_code >= 400 AND json_valid(result.body)
                THEN result.body ->> '$.error.message' END) AS error_message,
  result.prompt_tokens AS prompt_tokens, result.completion_tokens AS completion_tokens,
  strftime('%Y-%m-%dT%H:%M:%fZ', batch.created_ms / 1000.0, 'unixepoch') AS submitted_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', job.started_ms / 1000.0, 'unixepoch') AS started_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', job.finished_ms / 1000.0, 'unixepoch') AS finished_at,
  batch.created_ms AS submitted_ms, job.started_ms AS started_ms, job.finished_ms AS finished_ms,
  CASE WHEN json_valid(result.nightsweep)
       THEN result.nightsweep ->> '$.tokens_per_s' END AS tokens_per_s,
  result.sequence AS finish_order,
  request.body AS request, result.body AS response, result.nightsweep AS nightsweep
FROM job
JOIN batch ON batch.id = job.batch
JOIN model ON model.id = job.model
LEFT JOIN request ON request.job = job.id
LEFT JOIN result ON result.job = job.id;
