-- What people look at and write to, and the triggers that keep the counters. Made anew by every
-- migration.
--
-- Reading: SELECT from `batches`, `jobs` and `sweeps`.
-- Writing, also while a worker runs (it notices within a step):
--   UPDATE batches SET status = 'cancelled' WHERE id = 'batch_...';
--   UPDATE batches SET priority = 5 WHERE id = 'batch_...';
--   UPDATE jobs SET status = 'cancelled' WHERE batch_id = 'batch_...' AND custom_id = 'a';
--   UPDATE jobs SET status = 'waiting' WHERE batch_id = 'batch_...' AND status = 'failed';  -- retry
--   INSERT INTO inbox (batch, line) VALUES ('mine', '{"prompt": "Hello"}');
--   UPDATE control SET is_paused = 1;

-- ---- counters ----

CREATE TRIGGER job_changes_state AFTER UPDATE OF state ON job WHEN OLD.state <> NEW.state BEGIN
  UPDATE batch SET
    n_running = n_running - (OLD.state = 'running') + (NEW.state = 'running'),
    n_completed = n_completed - (OLD.state = 'completed') + (NEW.state = 'completed'),
    n_failed = n_failed - (OLD.state IN ('failed', 'cancelled', 'expired'))
                        + (NEW.state IN ('failed', 'cancelled', 'expired')),
    started_ms = CASE WHEN NEW.state = 'running' THEN coalesce(started_ms, NEW.started_ms)
                      ELSE started_ms END,
    served_ms = CASE WHEN NEW.state = 'running' THEN NEW.started_ms ELSE served_ms END
  WHERE id = NEW.batch;
  UPDATE batch SET
    ended_ms = NEW.finished_ms,
    status = CASE status WHEN 'cancelling' THEN 'cancelled' WHEN 'finalizing' THEN 'expired'
                         ELSE 'completed' END
  WHERE id = NEW.batch AND ended_ms IS NULL AND n_completed + n_failed = n_total;
END;

-- A job of an ended batch is tried again.
CREATE TRIGGER job_is_retried AFTER UPDATE OF state ON job
WHEN NEW.state = 'waiting' AND OLD.state NOT IN ('waiting', 'running') BEGIN
  UPDATE batch SET status = 'in_progress', ended_ms = NULL, cancelling_ms = NULL, expires_ms = NULL
  WHERE id = NEW.batch AND ended_ms IS NOT NULL;
END;

CREATE TRIGGER result_comes AFTER INSERT ON result
WHEN NEW.prompt_tokens > 0 OR NEW.completion_tokens > 0 BEGIN
  UPDATE batch SET prompt_tokens = prompt_tokens + NEW.prompt_tokens,
                   completion_tokens = completion_tokens + NEW.completion_tokens
  WHERE id = NEW.batch;
END;

CREATE TRIGGER result_goes AFTER DELETE ON result
WHEN OLD.prompt_tokens > 0 OR OLD.completion_tokens > 0 BEGIN
  UPDATE batch SET prompt_tokens = prompt_tokens - OLD.prompt_tokens,
                   completion_tokens = completion_tokens - OLD.completion_tokens
  WHERE id = OLD.batch;
END;

-- ---- views ----


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
FROM batch WHERE is_hidden = 0;

CREATE VIEW jobs AS
SELECT
  job.id AS id, batch.public_id AS batch_id, job.line AS line, job.custom_id AS custom_id,
  job.state AS status, nullif(model.name, '') AS model, batch.priority AS priority,
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
LEFT JOIN result ON result.job = job.id
WHERE batch.is_hidden = 0;

-- A row is what the sweeps of about ten seconds did, or one sweep where it takes longer.
CREATE VIEW sweeps AS
SELECT
  strftime('%Y-%m-%dT%H:%M:%fZ', begin_ms / 1000.0, 'unixepoch') AS began_at,
  strftime('%Y-%m-%dT%H:%M:%fZ', end_ms / 1000.0, 'unixepoch') AS ended_at,
  model, n_sweeps, prefill_tokens + decode_tokens AS rows, prefill_tokens, decode_tokens,
  new_tokens, shared_tokens, evictions, new_tokens / nullif(sweep_s, 0) AS tokens_per_s,
  resident_bytes, link_bytes, disk_bytes, sweep_s, queue_s, wait_s, link_wait_s, ring_wait_s,
  disk_busy_s, link_share, disk_share, binding, energy_j,
  energy_j / nullif(new_tokens, 0) AS joules_per_token, begin_ms, end_ms
FROM sweep;

CREATE TRIGGER batches_update INSTEAD OF UPDATE ON batches BEGIN
  SELECT RAISE(ABORT, 'of a batch, status (to cancelled), priority and expires_ms can be set')
  WHERE NEW.id IS NOT OLD.id
     OR NEW.status IS NOT OLD.status AND NEW.status NOT IN ('cancelling', 'cancelled');
  UPDATE batch SET priority = NEW.priority, expires_ms = NEW.expires_ms WHERE public_id = OLD.id;
  UPDATE batch SET status = 'cancelling',
    cancelling_ms = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
  WHERE public_id = OLD.id AND ended_ms IS NULL AND status <> 'cancelling'
    AND NEW.status IN ('cancelling', 'cancelled');
END;

CREATE TRIGGER jobs_update INSTEAD OF UPDATE ON jobs BEGIN
  SELECT RAISE(ABORT, 'of a job, status can be set: to cancelled, or to waiting once it has failed')
  WHERE NEW.id IS NOT OLD.id
     OR NEW.status IS NOT OLD.status AND NEW.status NOT IN ('waiting', 'cancelled')
     OR NEW.status = 'waiting' AND OLD.status IN ('running', 'completed');
  UPDATE job SET cancel_ms = CAST((julianday('now') - 2440587.5) * 86400000 AS INTEGER)
  WHERE id = OLD.id AND state IN ('waiting', 'running') AND NEW.status = 'cancelled';
  DELETE FROM result WHERE job = OLD.id AND NEW.status = 'waiting' AND OLD.status <> 'waiting';
  UPDATE job SET state = 'waiting', finished_ms = NULL, strikes = 0, alone_strikes = 0,
    group_limit = NULL
  WHERE id = OLD.id AND NEW.status = 'waiting' AND OLD.status <> 'waiting';
END;
