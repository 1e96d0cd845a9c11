-- A queue as schema 3 left it: that of schema_2.sql moved up. An SQL dump, with the two PRAGMAs that
-- it leaves out.
PRAGMA application_id = 0x4E535751;
PRAGMA user_version = 3;
PRAGMA foreign_keys=OFF;
BEGIN TRANSACTION;
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
  is_pruned         INTEGER NOT NULL DEFAULT 0,  -- on its way out, in slices; shown no more
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
INSERT INTO batch VALUES(1,'batch_4f6njmnwuezykvagckbkne64','48192171961a7e139515a724eef03f70cc6faa0d72567ba36669e00c14b902c9',NULL,NULL,'a.jsonl','/models/model.gguf','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":false,"max_line_bytes":16777216}',0,'completed',1795980839389,1795980840169,NULL,NULL,NULL,1795980840423,0,2,0,2,0,2,4);
INSERT INTO batch VALUES(2,'batch_ozvtvtys4a6efdft5bkcdj3j',NULL,NULL,NULL,'b.jsonl','/models/model.gguf','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":true,"max_line_bytes":16777216}',0,'in_progress',1795980840556,1795980840834,NULL,NULL,NULL,NULL,0,3,2,0,1,0,0);
INSERT INTO batch VALUES(3,'batch_no5i6vhwe4sgdcmboj64auap',NULL,NULL,NULL,'c.jsonl','','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":false,"max_line_bytes":16777216}',0,'completed',1795980840586,1795980840905,NULL,NULL,NULL,1795980841838,0,1,0,1,0,1,2);
INSERT INTO batch VALUES(4,'batch_m2zvt52zoqtdzuml32lkoqip',NULL,NULL,NULL,'d.jsonl','','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":false,"max_line_bytes":16777216}',0,'in_progress',1795980855855,NULL,NULL,NULL,NULL,NULL,0,2,0,0,0,0,0);
CREATE TABLE checkpoint (
  job         INTEGER PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,
  identity    TEXT    NOT NULL,  -- model, backend and kernels; under another the answer starts again
  data        BLOB    NOT NULL,
  owner       INTEGER NOT NULL,  -- with claim_group: the claim that wrote it
  claim_group INTEGER NOT NULL,
  saved_ms    INTEGER NOT NULL
) STRICT;
INSERT INTO checkpoint VALUES(3,'71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803/cpu-fast-1/kv-f16',X'5b5b323332392c373132322c3238322c383438362c38322c3431392c3335312c323439302c31383334352c33302c3231362c3139382c313838322c3933322c3631342c3235332c343336392c343331352c3238322c3231362c33352c33322c33322c3432392c3231362c33332c33322c33322c33322c343739312c3336352c31303436392c3437362c37322c313030322c3335312c3236302c31303034372c31353339322c343232352c3634332c3238342c343934302c343336392c31303437392c3231362c34302c33322c313731312c313031352c3235332c32343336302c3238382c333532352c3235332c343331352c3238322c3231362c33352c343336392c31343035342c3535342c39352c353036322c3738312c33302c313335302c353935382c3235332c343331352c3238322c3231362c33352c33322c3238382c313734332c3236302c33333331382c3431382c313630362c33322c33392c33342c3832362c31353439372c3130312c3238342c323237332c3238342c393332392c3335312c3432382c32392c33303437302c313231342c3238322c3231362c33322c33302c33342c33302c313634342c383434392c3238342c353139322c3830352c323237332c3430392c3431382c3830352c323237332c33302c333837352c3236302c31323937352c3238322c353032322c33302c35302c3433362c31343538362c313536382c3238382c323237332c313837382c3431312c3432322c333933372c3237362c33302c323535302c3231362c33382c333634322c32382c3339322c3738342c32373531312c32382c3335312c323132302c3231362c34312c32312c33373939362c3530362c3238382c323534352c3537382c3236302c31323937352c3333382c3334372c3236302c343331352c3433362c333232372c3236302c313032382c3433362c313733302c3238382c3332352c3538322c3238382c323237332c313837382c313336352c3637302c3236302c3430372c323930312c383534322c313638332c3236302c32333136302c33302c313335302c333035332c3236302c333438362c323837322c31313731352c3332372c313737372c313134352c32363031392c3238342c31313031322c33302c3139382c3530342c34343031362c3238322c3236302c32313137312c323435322c3238312c3236302c3830382c323734352c3238322c323439302c393631302c31343136392c32382c3236302c323131352c3332372c3235332c313530322c32343831302c373130332c3238322c34333738332c3736382c31373636352c353438392c31383334352c33302c31383230392c3535332c353530322c3336302c3332302c3238322c373530352c33302c353034382c3238342c3335372c3433362c333336332c3532332c323034322c3238382c313932382c3335372c3236302c313530322c34313835322c34383738372c33302c313234392c3632342c323431322c3331342c3738372c323834382c3532332c323936372c3538382c3334372c3238382c343130372c3335372c33302c3337382c323533372c323132302c3632342c313638302c32382c3239372c3431392c313337312c333938332c32382c3334372c3335372c33303132342c3334372c3334362c343534392c313639392c3236302c333238322c33302c3337382c31333130392c31353637302c3539332c313432352c343637372c363638382c32382c3331342c3435312c3539392c3238322c313130392c363931372c33302c373336392c3335372c3931352c393537312c33302c3139382c3530342c3538382c323739372c3238322c333830312c333938352c3238322c353137362c3538322c3937302c3938332c3632342c3937302c3631382c3635332c3538382c323739372c333338302c3733312c31373034302c343335342c32382c323432322c3238382c3236305d5d',2,1,1795980845858);
INSERT INTO checkpoint VALUES(4,'71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803/cpu-fast-1/kv-f16',X'5b5b313838382c313733342c33302c313632362c313132302c32382c3339322c313132302c3431312c333431352c3236302c343338312c3238342c323731382c3530322c313539332c3333352c33302c313335302c3238382c333837362c3333352c3333382c32382c3238312c3236302c313334352c3930352c32382c3636352c3331342c3738372c363731382c313736332c3333382c3331342c323430382c393033312c3238382c323736362c323538312c33302c313634342c3738372c323931342c32392c32353736392c32382c323931342c32392c31323532392c31393132372c32382c323931342c32392c393836332c3734362c3331342c313633362c31333533322c33302c313335302c3538382c3333382c3431372c39392c3833372c363136382c3238342c353932322c313639302c3238312c33302c3139382c3139382c323639362c32382c31333131372c3238342c353633352c32382c3530322c3335392c31343337362c31343339322c3236302c323535362c323334302c333431362c3432392c3438302c363030372c33302c313033322c3936372c3631372c3533362c3335372c3434312c3435372c3235332c343138372c31333533322c33302c313535302c3936372c323731352c3438302c333036322c3238382c333737372c3238382c323334302c3732342c3937352c3238322c3833372c3236302c3535302c313935322c3835362c343131322c3332352c3830342c3238382c3931392c3335372c313633362c3238382c3931352c323437352c33302c313834382c3431372c39392c3634352c3333392c363832302c32382c3335372c323135392c313133352c313439352c32382c32303839312c3238342c353438352c33302c313234392c3332372c3936372c3631372c3435372c3238382c313336332c32382c3434312c3538382c313038332c33302c313131362c3139382c35342c3333362c3331382c31383237392c323738392c32373738302c313834382c3333392c3431372c39332c32303637372c323738392c353236352c31303039352c3139382c3139382c393333352c39322c31313637302c3431382c363432322c31333731392c3535332c333931372c353731312c3238322c333136382c3238312c3236302c313739372c383337382c3238382c313034322c373639372c3432392c3438302c343933322c313132322c39392c32303333342c393137332c3238342c31373136342c33302c3139382c3139382c3530342c3632352c3339382c34383532332c31323633382c3436392c33393136362c353636312c313233382c323333382c31313137382c313137352c323230362c33302c333334392c3830352c3333382c3334362c313233382c3335312c3630312c32382c3334362c3539372c323630362c3630312c3431312c3438302c353032362c33302c3139382c3139382c34333135312c34363038392c3238342c383438362c3330322c3537302c3139382c3139382c393333302c3238312c373837302c3238382c3335342c31303735382c3531392c333333302c3231362c33372c33372c33372c3139382c3139382c34392c313035352c3631372c333539302c3635302c3237352c3639372c38332c33313137332c31343131352c38352c313133352c323230362c313734352c3635302c313435302c333238392c3335312c383734332c3937312c3535302c383438362c3330322c3236392c3531392c33302c3139382c3139382c393433342c313735342c35332c353032322c333931312c373632372c32303831332c32382c36362c323732312c35392c363536352c323231312c373835342c313435362c3635392c343231302c31383839392c3338392c33303239392c393334352c343231302c31323034312c3336352c33332c34302c34312c33362c313439342c33332c34312c34302c33342c32355d5d',2,1,1795980845858);
CREATE TABLE control (
  id               INTEGER PRIMARY KEY CHECK (id = 1),
  is_paused        INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1)),
  run_now_until_ms INTEGER  -- till then the worker's windows do not matter; NULL: they do
) STRICT;
INSERT INTO control VALUES(1,1,NULL);
CREATE TABLE gain (
  owner       INTEGER NOT NULL,
  claim_group INTEGER NOT NULL,
  PRIMARY KEY (owner, claim_group)
) STRICT, WITHOUT ROWID;
INSERT INTO gain VALUES(2,1);
CREATE TABLE inbox (
  id       INTEGER PRIMARY KEY AUTOINCREMENT,  -- in order of lines
  batch    TEXT    NOT NULL DEFAULT 'inbox',   -- a name for the batch
  line     TEXT    NOT NULL,                   -- as in an input file: {"prompt": ...}
  model    TEXT    NOT NULL DEFAULT '',        -- file or name; '': as the line says
  priority INTEGER NOT NULL DEFAULT 0
) STRICT;
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
  -- Set while it runs. (owner, claim_group, attempt) is what a worker's write must name.
  owner       INTEGER,  -- worker.id; no foreign key: deleting a worker would scan all jobs
  claim_group INTEGER,  -- number of the owner's claim: jobs that were handed out together
  started_ms  INTEGER,  -- last claim
  finished_ms INTEGER, length INTEGER NOT NULL DEFAULT 0,
  CHECK (state IN ('waiting', 'running', 'completed', 'failed', 'cancelled', 'expired')),
  CHECK ((state = 'running') = (owner IS NOT NULL)),
  CHECK ((state = 'running') = (claim_group IS NOT NULL)),
  CHECK ((state IN ('waiting', 'running')) = (finished_ms IS NULL)),
  CHECK (attempt >= 0 AND strikes >= 0)
) STRICT;
INSERT INTO job VALUES(1,1,1,'done-1',1,'completed',1,0,0,NULL,0,NULL,NULL,NULL,1795980840169,1795980840422,0);
INSERT INTO job VALUES(2,1,2,'done-2',1,'completed',1,0,0,NULL,0,NULL,NULL,NULL,1795980840169,1795980840423,0);
INSERT INTO job VALUES(3,2,1,'half-1',1,'running',1,0,0,NULL,0,NULL,2,1,1795980840834,NULL,0);
INSERT INTO job VALUES(4,2,2,'half-2',1,'running',1,0,0,NULL,0,NULL,2,1,1795980840834,NULL,0);
INSERT INTO job VALUES(5,2,3,'bad',1,'failed',0,0,0,NULL,0,NULL,NULL,NULL,NULL,1795980840556,0);
INSERT INTO job VALUES(6,3,1,'wait-1',2,'completed',1,0,0,NULL,0,NULL,NULL,NULL,1795980840905,1795980841838,0);
INSERT INTO job VALUES(7,4,1,'wait-1',2,'waiting',0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,0);
INSERT INTO job VALUES(8,4,2,'wait-2',3,'waiting',0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL,0);
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,  -- 'created_ms'
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO meta VALUES('created_ms','1795980839349');
CREATE TABLE model (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE  -- file or name; '' for jobs that name none
) STRICT;
INSERT INTO model VALUES(1,'/models/model.gguf');
INSERT INTO model VALUES(2,'another');
INSERT INTO model VALUES(3,'');
CREATE TABLE request (
  job  INTEGER PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,
  body TEXT NOT NULL  -- JSON: the request with everything that decides its answer
) STRICT;
INSERT INTO request VALUES(1,'{"v":1,"custom_id":"done-1","line":1,"endpoint":"/v1/completions","prompts":["One"],"seed":1,"max_tokens":2}');
INSERT INTO request VALUES(2,'{"v":1,"custom_id":"done-2","line":2,"endpoint":"/v1/completions","prompts":["Two"],"seed":2,"max_tokens":2}');
INSERT INTO request VALUES(3,'{"v":1,"custom_id":"half-1","line":1,"endpoint":"/v1/completions","prompts":["Three"],"seed":1,"max_tokens":400,"ignore_eos":true}');
INSERT INTO request VALUES(4,'{"v":1,"custom_id":"half-2","line":2,"endpoint":"/v1/completions","prompts":["Four"],"seed":1,"max_tokens":400,"ignore_eos":true}');
INSERT INTO request VALUES(5,'');
INSERT INTO request VALUES(6,'{"v":1,"custom_id":"wait-1","line":1,"endpoint":"/v1/completions","model":"another","prompts":["Five"],"seed":1,"max_tokens":2}');
INSERT INTO request VALUES(7,'{"v":1,"custom_id":"wait-1","line":1,"endpoint":"/v1/completions","model":"another","prompts":["Six"],"seed":1,"max_tokens":2}');
INSERT INTO request VALUES(8,'{"v":1,"custom_id":"wait-2","line":2,"endpoint":"/v1/completions","prompts":["Seven"],"seed":1,"max_tokens":2}');
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
INSERT INTO result VALUES(1,1,1,1,200,'{"id":"cmpl-req_1","object":"text_completion","created":1795980840,"model":"model","choices":[{"index":0,"text":" added pressure","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp_71a7347e820688aa"}','{"queued_s":0.804,"prefill_s":0.198017825,"decode_s":0.030737288,"first_token_s":0.198728224,"sweeps":2,"attempts":1,"tokens_per_s":8.716313323013916,"seed":1,"model_fingerprint":"71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803"}',NULL,NULL,1,2);
INSERT INTO result VALUES(2,2,1,2,200,'{"id":"cmpl-req_2","object":"text_completion","created":1795980840,"model":"model","choices":[{"index":0,"text":"\n1","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp_71a7347e820688aa"}','{"queued_s":0.804,"prefill_s":0.198646566,"decode_s":0.030722775,"first_token_s":0.19866229999999999,"sweeps":2,"attempts":1,"tokens_per_s":8.716878949037634,"seed":2,"model_fingerprint":"71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803"}',NULL,NULL,1,2);
INSERT INTO result VALUES(3,5,2,3,400,'{"error":{"message":"prompt: expected a string, a list of strings, a list of token ids, or a list of lists of token ids, found the number 5","type":"invalid_request_error","param":"prompt","code":"invalid_type"}}',NULL,NULL,NULL,0,0);
INSERT INTO result VALUES(4,6,3,1,200,'{"id":"cmpl-req_6","object":"text_completion","created":1795980840,"model":"another","choices":[{"index":0,"text":" performing verb","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp_71a7347e820688aa"}','{"queued_s":0.343,"prefill_s":0.014504413,"decode_s":0.018949844,"first_token_s":0.014580367999999996,"sweeps":2,"attempts":1,"tokens_per_s":59.63468033366318,"seed":1,"model_fingerprint":"71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803"}',NULL,NULL,1,2);
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
INSERT INTO worker VALUES(1,4988,'home','11111111-2222-3333-4444-555555555555','/models/model.gguf','cpu',1795980839369,1795980840445,1795980840477,'{"answered":2,"failed":0,"in_flight":0,"tokens_per_s":0.0,"jobs_per_s":7.251970366694104,"disk_share":0.0,"left_s":null}');
INSERT INTO worker VALUES(2,5023,'home','11111111-2222-3333-4444-555555555555','/models/model.gguf','cpu',1795980840664,1795980846173,NULL,'{"answered":1,"failed":0,"in_flight":2,"tokens_per_s":128.90117570191563,"jobs_per_s":0.18731743389622924,"disk_share":0.0,"left_s":null}');
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
DELETE FROM sqlite_sequence;
INSERT INTO sqlite_sequence VALUES('worker',2);
INSERT INTO sqlite_sequence VALUES('batch',4);
INSERT INTO sqlite_sequence VALUES('job',8);
INSERT INTO sqlite_sequence VALUES('result',4);
CREATE UNIQUE INDEX batch_by_key ON batch (key)
  WHERE key IS NOT NULL AND status NOT IN ('cancelling', 'cancelled');
CREATE UNIQUE INDEX batch_by_idempotency_key ON batch (idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX batch_by_content ON batch (content) WHERE content IS NOT NULL;
CREATE INDEX batch_open ON batch (priority) WHERE ended_ms IS NULL;
CREATE INDEX batch_pruned ON batch (id) WHERE is_pruned = 1;
CREATE UNIQUE INDEX job_by_line ON job (batch, line);
CREATE UNIQUE INDEX job_by_custom_id ON job (batch, custom_id);
CREATE INDEX job_suspect ON job (group_limit) WHERE state = 'waiting' AND group_limit IS NOT NULL;
CREATE INDEX job_cancelled ON job (cancel_ms) WHERE cancel_ms IS NOT NULL;
CREATE INDEX job_running ON job (owner, claim_group) WHERE state = 'running';
CREATE UNIQUE INDEX result_by_line ON result (batch, line);
CREATE INDEX result_by_batch ON result (batch);
CREATE INDEX job_waiting ON job (batch, model, length DESC)
  WHERE state = 'waiting' AND group_limit IS NULL;
CREATE INDEX sweep_by_end ON sweep (end_ms);
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
FROM batch WHERE is_pruned = 0;
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
WHERE batch.is_pruned = 0
;
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
COMMIT;
