-- A queue as schema 2 left it: that of schema_1.sql moved up, and paused. An SQL dump, with the two
-- PRAGMAs that it leaves out.
PRAGMA application_id = 0x4E535751;
PRAGMA user_version = 2;
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
INSERT INTO "batch" VALUES(1,'batch_4f6njmnwuezykvagckbkne64','48192171961a7e139515a724eef03f70cc6faa0d72567ba36669e00c14b902c9',NULL,NULL,'a.jsonl','/models/model.gguf','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":false,"max_line_bytes":16777216}',0,'completed',1795980839389,1795980840169,NULL,NULL,NULL,1795980840423,0,2,0,2,0,2,4);
INSERT INTO "batch" VALUES(2,'batch_ozvtvtys4a6efdft5bkcdj3j',NULL,NULL,NULL,'b.jsonl','/models/model.gguf','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":true,"max_line_bytes":16777216}',0,'in_progress',1795980840556,1795980840834,NULL,NULL,NULL,NULL,0,3,2,0,1,0,0);
INSERT INTO "batch" VALUES(3,'batch_no5i6vhwe4sgdcmboj64auap',NULL,NULL,NULL,'c.jsonl','','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":false,"max_line_bytes":16777216}',0,'completed',1795980840586,1795980840905,NULL,NULL,NULL,1795980841838,0,1,0,1,0,1,2);
INSERT INTO "batch" VALUES(4,'batch_m2zvt52zoqtdzuml32lkoqip',NULL,NULL,NULL,'d.jsonl','','/v1/completions','{"set":{},"map_model":{},"endpoint":null,"lenient":false,"keep_going":false,"max_line_bytes":16777216}',0,'in_progress',1795980855855,NULL,NULL,NULL,NULL,NULL,0,2,0,0,0,0,0);
CREATE TABLE checkpoint (
  job         INTEGER PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,
  identity    TEXT    NOT NULL,  -- model, backend and kernels; under another the answer starts again
  data        BLOB    NOT NULL,
  owner       INTEGER NOT NULL,  -- with claim_group: the claim that wrote it
  claim_group INTEGER NOT NULL,
  saved_ms    INTEGER NOT NULL
) STRICT;
INSERT INTO "checkpoint" VALUES(3,'71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803/cpu-fast-1/kv-f16',X'5B5B323332392C373132322C3238322C383438362C38322C3431392C3335312C323439302C31383334352C33302C3231362C3139382C313838322C3933322C3631342C3235332C343336392C343331352C3238322C3231362C33352C33322C33322C3432392C3231362C33332C33322C33322C33322C343739312C3336352C31303436392C3437362C37322C313030322C3335312C3236302C31303034372C31353339322C343232352C3634332C3238342C343934302C343336392C31303437392C3231362C34302C33322C313731312C313031352C3235332C32343336302C3238382C333532352C3235332C343331352C3238322C3231362C33352C343336392C31343035342C3535342C39352C353036322C3738312C33302C313335302C353935382C3235332C343331352C3238322C3231362C33352C33322C3238382C313734332C3236302C33333331382C3431382C313630362C33322C33392C33342C3832362C31353439372C3130312C3238342C323237332C3238342C393332392C3335312C3432382C32392C33303437302C313231342C3238322C3231362C33322C33302C33342C33302C313634342C383434392C3238342C353139322C3830352C323237332C3430392C3431382C3830352C323237332C33302C333837352C3236302C31323937352C3238322C353032322C33302C35302C3433362C31343538362C313536382C3238382C323237332C313837382C3431312C3432322C333933372C3237362C33302C323535302C3231362C33382C333634322C32382C3339322C3738342C32373531312C32382C3335312C323132302C3231362C34312C32312C33373939362C3530362C3238382C323534352C3537382C3236302C31323937352C3333382C3334372C3236302C343331352C3433362C333232372C3236302C313032382C3433362C313733302C3238382C3332352C3538322C3238382C323237332C313837382C313336352C3637302C3236302C3430372C323930312C383534322C313638332C3236302C32333136302C33302C313335302C333035332C3236302C333438362C323837322C31313731352C3332372C313737372C313134352C32363031392C3238342C31313031322C33302C3139382C3530342C34343031362C3238322C3236302C32313137312C323435322C3238312C3236302C3830382C323734352C3238322C323439302C393631302C31343136392C32382C3236302C323131352C3332372C3235332C313530322C32343831302C373130332C3238322C34333738332C3736382C31373636352C353438392C31383334352C33302C31383230392C3535332C353530322C3336302C3332302C3238322C373530352C33302C353034382C3238342C3335372C3433362C333336332C3532332C323034322C3238382C313932382C3335372C3236302C313530322C34313835322C34383738372C33302C313234392C3632342C323431322C3331342C3738372C323834382C3532332C323936372C3538382C3334372C3238382C343130372C3335372C33302C3337382C323533372C323132302C3632342C313638302C32382C3239372C3431392C313337312C333938332C32382C3334372C3335372C33303132342C3334372C3334362C343534392C313639392C3236302C333238322C33302C3337382C31333130392C31353637302C3539332C313432352C343637372C363638382C32382C3331342C3435312C3539392C3238322C313130392C363931372C33302C373336392C3335372C3931352C393537312C33302C3139382C3530342C3538382C323739372C3238322C333830312C333938352C3238322C353137362C3538322C3937302C3938332C3632342C3937302C3631382C3635332C3538382C323739372C333338302C3733312C31373034302C343335342C32382C323432322C3238382C3236305D5D',2,1,1795980845858);
INSERT INTO "checkpoint" VALUES(4,'71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803/cpu-fast-1/kv-f16',X'5B5B313838382C313733342C33302C313632362C313132302C32382C3339322C313132302C3431312C333431352C3236302C343338312C3238342C323731382C3530322C313539332C3333352C33302C313335302C3238382C333837362C3333352C3333382C32382C3238312C3236302C313334352C3930352C32382C3636352C3331342C3738372C363731382C313736332C3333382C3331342C323430382C393033312C3238382C323736362C323538312C33302C313634342C3738372C323931342C32392C32353736392C32382C323931342C32392C31323532392C31393132372C32382C323931342C32392C393836332C3734362C3331342C313633362C31333533322C33302C313335302C3538382C3333382C3431372C39392C3833372C363136382C3238342C353932322C313639302C3238312C33302C3139382C3139382C323639362C32382C31333131372C3238342C353633352C32382C3530322C3335392C31343337362C31343339322C3236302C323535362C323334302C333431362C3432392C3438302C363030372C33302C313033322C3936372C3631372C3533362C3335372C3434312C3435372C3235332C343138372C31333533322C33302C313535302C3936372C323731352C3438302C333036322C3238382C333737372C3238382C323334302C3732342C3937352C3238322C3833372C3236302C3535302C313935322C3835362C343131322C3332352C3830342C3238382C3931392C3335372C313633362C3238382C3931352C323437352C33302C313834382C3431372C39392C3634352C3333392C363832302C32382C3335372C323135392C313133352C313439352C32382C32303839312C3238342C353438352C33302C313234392C3332372C3936372C3631372C3435372C3238382C313336332C32382C3434312C3538382C313038332C33302C313131362C3139382C35342C3333362C3331382C31383237392C323738392C32373738302C313834382C3333392C3431372C39332C32303637372C323738392C353236352C31303039352C3139382C3139382C393333352C39322C31313637302C3431382C363432322C31333731392C3535332C333931372C353731312C3238322C333136382C3238312C3236302C313739372C383337382C3238382C313034322C373639372C3432392C3438302C343933322C313132322C39392C32303333342C393137332C3238342C31373136342C33302C3139382C3139382C3530342C3632352C3339382C34383532332C31323633382C3436392C33393136362C353636312C313233382C323333382C31313137382C313137352C323230362C33302C333334392C3830352C3333382C3334362C313233382C3335312C3630312C32382C3334362C3539372C323630362C3630312C3431312C3438302C353032362C33302C3139382C3139382C34333135312C34363038392C3238342C383438362C3330322C3537302C3139382C3139382C393333302C3238312C373837302C3238382C3335342C31303735382C3531392C333333302C3231362C33372C33372C33372C3139382C3139382C34392C313035352C3631372C333539302C3635302C3237352C3639372C38332C33313137332C31343131352C38352C313133352C323230362C313734352C3635302C313435302C333238392C3335312C383734332C3937312C3535302C383438362C3330322C3236392C3531392C33302C3139382C3139382C393433342C313735342C35332C353032322C333931312C373632372C32303831332C32382C36362C323732312C35392C363536352C323231312C373835342C313435362C3635392C343231302C31383839392C3338392C33303239392C393334352C343231302C31323034312C3336352C33332C34302C34312C33362C313439342C33332C34312C34302C33342C32355D5D',2,1,1795980845858);
CREATE TABLE control (
  id               INTEGER PRIMARY KEY CHECK (id = 1),
  is_paused        INTEGER NOT NULL DEFAULT 0 CHECK (is_paused IN (0, 1)),
  run_now_until_ms INTEGER  -- till then the worker's windows do not matter; NULL: they do
) STRICT;
INSERT INTO "control" VALUES(1,1,NULL);
CREATE TABLE gain (
  owner       INTEGER NOT NULL,
  claim_group INTEGER NOT NULL,
  PRIMARY KEY (owner, claim_group)
) STRICT, WITHOUT ROWID;
INSERT INTO "gain" VALUES(2,1);
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
  finished_ms INTEGER,
  CHECK (state IN ('waiting', 'running', 'completed', 'failed', 'cancelled', 'expired')),
  CHECK ((state = 'running') = (owner IS NOT NULL)),
  CHECK ((state = 'running') = (claim_group IS NOT NULL)),
  CHECK ((state IN ('waiting', 'running')) = (finished_ms IS NULL)),
  CHECK (attempt >= 0 AND strikes >= 0)
) STRICT;
INSERT INTO "job" VALUES(1,1,1,'done-1',1,'completed',1,0,0,NULL,0,NULL,NULL,NULL,1795980840169,1795980840422);
INSERT INTO "job" VALUES(2,1,2,'done-2',1,'completed',1,0,0,NULL,0,NULL,NULL,NULL,1795980840169,1795980840423);
INSERT INTO "job" VALUES(3,2,1,'half-1',1,'running',1,0,0,NULL,0,NULL,2,1,1795980840834,NULL);
INSERT INTO "job" VALUES(4,2,2,'half-2',1,'running',1,0,0,NULL,0,NULL,2,1,1795980840834,NULL);
INSERT INTO "job" VALUES(5,2,3,'bad',1,'failed',0,0,0,NULL,0,NULL,NULL,NULL,NULL,1795980840556);
INSERT INTO "job" VALUES(6,3,1,'wait-1',2,'completed',1,0,0,NULL,0,NULL,NULL,NULL,1795980840905,1795980841838);
INSERT INTO "job" VALUES(7,4,1,'wait-1',2,'waiting',0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL);
INSERT INTO "job" VALUES(8,4,2,'wait-2',3,'waiting',0,0,0,NULL,0,NULL,NULL,NULL,NULL,NULL);
CREATE TABLE meta (
  name  TEXT PRIMARY KEY,  -- 'created_ms'
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "meta" VALUES('created_ms','1795980839349');
CREATE TABLE model (
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE  -- file or name; '' for jobs that name none
) STRICT;
INSERT INTO "model" VALUES(1,'/models/model.gguf');
INSERT INTO "model" VALUES(2,'another');
INSERT INTO "model" VALUES(3,'');
CREATE TABLE request (
  job  INTEGER PRIMARY KEY REFERENCES job (id) ON DELETE CASCADE,
  body TEXT NOT NULL  -- JSON: the request with everything that decides its answer
) STRICT;
INSERT INTO "request" VALUES(1,'{"v":1,"custom_id":"done-1","line":1,"endpoint":"/v1/completions","prompts":["One"],"seed":1,"max_tokens":2}');
INSERT INTO "request" VALUES(2,'{"v":1,"custom_id":"done-2","line":2,"endpoint":"/v1/completions","prompts":["Two"],"seed":2,"max_tokens":2}');
INSERT INTO "request" VALUES(3,'{"v":1,"custom_id":"half-1","line":1,"endpoint":"/v1/completions","prompts":["Three"],"seed":1,"max_tokens":400,"ignore_eos":true}');
INSERT INTO "request" VALUES(4,'{"v":1,"custom_id":"half-2","line":2,"endpoint":"/v1/completions","prompts":["Four"],"seed":1,"max_tokens":400,"ignore_eos":true}');
INSERT INTO "request" VALUES(5,'');
INSERT INTO "request" VALUES(6,'{"v":1,"custom_id":"wait-1","line":1,"endpoint":"/v1/completions","model":"another","prompts":["Five"],"seed":1,"max_tokens":2}');
INSERT INTO "request" VALUES(7,'{"v":1,"custom_id":"wait-1","line":1,"endpoint":"/v1/completions","model":"another","prompts":["Six"],"seed":1,"max_tokens":2}');
INSERT INTO "request" VALUES(8,'{"v":1,"custom_id":"wait-2","line":2,"endpoint":"/v1/completions","prompts":["Seven"],"seed":1,"max_tokens":2}');
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
INSERT INTO "result" VALUES(1,1,1,1,200,'{"id":"cmpl-req_1","object":"text_completion","created":1795980840,"model":"model","choices":[{"index":0,"text":" added pressure","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp_71a7347e820688aa"}','{"queued_s":0.804,"prefill_s":0.198017825,"decode_s":0.030737288,"first_token_s":0.198728224,"sweeps":2,"attempts":1,"tokens_per_s":8.716313323013916,"seed":1,"model_fingerprint":"71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803"}',NULL,NULL,1,2);
INSERT INTO "result" VALUES(2,2,1,2,200,'{"id":"cmpl-req_2","object":"text_completion","created":1795980840,"model":"model","choices":[{"index":0,"text":"\n1","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp_71a7347e820688aa"}','{"queued_s":0.804,"prefill_s":0.198646566,"decode_s":0.030722775,"first_token_s":0.19866229999999999,"sweeps":2,"attempts":1,"tokens_per_s":8.716878949037634,"seed":2,"model_fingerprint":"71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803"}',NULL,NULL,1,2);
INSERT INTO "result" VALUES(3,5,2,3,400,'{"error":{"message":"prompt: expected a string, a list of strings, a list of token ids, or a list of lists of token ids, found the number 5","type":"invalid_request_error","param":"prompt","code":"invalid_type"}}',NULL,NULL,NULL,0,0);
INSERT INTO "result" VALUES(4,6,3,1,200,'{"id":"cmpl-req_6","object":"text_completion","created":1795980840,"model":"another","choices":[{"index":0,"text":" performing verb","logprobs":null,"finish_reason":"length"}],"usage":{"prompt_tokens":1,"completion_tokens":2,"total_tokens":3},"system_fingerprint":"fp_71a7347e820688aa"}','{"queued_s":0.343,"prefill_s":0.014504413,"decode_s":0.018949844,"first_token_s":0.014580367999999996,"sweeps":2,"attempts":1,"tokens_per_s":59.63468033366318,"seed":1,"model_fingerprint":"71a7347e820688aad987b67684c88a22a9ce1f4b66a9f173721c5cba809dc803"}',NULL,NULL,1,2);
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
INSERT INTO "worker" VALUES(1,4988,'home','11111111-2222-3333-4444-555555555555','/models/model.gguf','cpu',1795980839369,1795980840445,1795980840477,'{"answered":2,"failed":0,"in_flight":0,"tokens_per_s":0.0,"jobs_per_s":7.251970366694104,"disk_share":0.0,"left_s":null}');
INSERT INTO "worker" VALUES(2,5023,'home','11111111-2222-3333-4444-555555555555','/models/model.gguf','cpu',1795980840664,1795980846173,NULL,'{"answered":1,"failed":0,"in_flight":2,"tokens_per_s":128.90117570191563,"jobs_per_s":0.18731743389622924,"disk_share":0.0,"left_s":null}');
CREATE UNIQUE INDEX batch_by_key ON batch (key)
  WHERE key IS NOT NULL AND status NOT IN ('cancelling', 'cancelled');
CREATE UNIQUE INDEX batch_by_idempotency_key ON batch (idempotency_key)
  WHERE idempotency_key IS NOT NULL;
CREATE INDEX batch_by_content ON batch (content) WHERE content IS NOT NULL;
CREATE INDEX batch_open ON batch (priority) WHERE ended_ms IS NULL;
CREATE INDEX batch_pruned ON batch (id) WHERE is_pruned = 1;
CREATE UNIQUE INDEX job_by_line ON job (batch, line);
CREATE UNIQUE INDEX job_by_custom_id ON job (batch, custom_id);
CREATE INDEX job_waiting ON job (batch, model) WHERE state = 'waiting' AND group_limit IS NULL;
CREATE INDEX job_suspect ON job (group_limit) WHERE state = 'waiting' AND group_limit IS NOT NULL;
CREATE INDEX job_cancelled ON job (cancel_ms) WHERE cancel_ms IS NOT NULL;
CREATE INDEX job_running ON job (owner, claim_group) WHERE state = 'running';
CREATE UNIQUE INDEX result_by_line ON result (batch, line);
CREATE INDEX result_by_batch ON result (batch);
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
WHERE batch.is_pruned = 0;
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
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('worker',2);
INSERT INTO "sqlite_sequence" VALUES('batch',4);
INSERT INTO "sqlite_sequence" VALUES('job',8);
INSERT INTO "sqlite_sequence" VALUES('result',4);
COMMIT;
