BEGIN TRANSACTION;
CREATE TABLE conversation (
            id TEXT PRIMARY KEY NOT NULL,
            title TEXT NOT NULL,
            pair TEXT NOT NULL,
            system TEXT,
            created REAL NOT NULL,
            updated REAL NOT NULL,
            deleted_at REAL,
            leaf INTEGER REFERENCES message(id) ON DELETE SET NULL
        );
INSERT INTO "conversation" VALUES('6fxxbkcf','Tell of add','storyteller','Be kind.',1.79587237190998411182e+09,1795872375.73553,NULL,4);
INSERT INTO "conversation" VALUES('6fxxbwft','The king é','storyteller','Be short.',1.7958723800370454788e+09,1.79587238189116930962e+09,NULL,15);
INSERT INTO "conversation" VALUES('6fxxbzh3','A second one','storyteller','Be short.',1.79587238358394384388e+09,1.79587238380390715598e+09,NULL,19);
INSERT INTO "conversation" VALUES('6fxxbz6p','To be deleted','storyteller','Be short.',1.7958723838068907261e+09,1.79587238391911220548e+09,1.79587238393100261687e+09,21);
CREATE TABLE message (
            id INTEGER PRIMARY KEY AUTOINCREMENT,
            conversation TEXT NOT NULL REFERENCES conversation(id) ON DELETE CASCADE,
            parent INTEGER REFERENCES message(id) DEFERRABLE INITIALLY DEFERRED,
            role TEXT NOT NULL CHECK (role IN ('user', 'assistant')),
            text TEXT NOT NULL,
            created REAL NOT NULL,
            finish TEXT,
            stats TEXT,
            attachments TEXT NOT NULL,
            writer INTEGER
        );
INSERT INTO "message" VALUES(1,'6fxxbkcf',NULL,'user','Tell of add',1.79587237191873431204e+09,'sent',NULL,'[{"name": "/files/notes.txt", "text": "def add(a, b):\n    return a + b\n"}]',NULL);
INSERT INTO "message" VALUES(2,'6fxxbkcf',1,'assistant',' the truth."

"I am glad to hear that this is not my',1.79587237192296433454e+09,'length','{"schema": "localspec.result/1", "reasoning": null, "finish_reason": "length", "seed": 7, "pair": {"name": "storyteller", "target": {"path": "/models/target-q8_0.gguf", "bytes": 5160352, "arch": "llama", "quant": "Q8_0", "n_params": 4721856, "n_vocab": 4096, "n_layer": 8, "kv_bytes": 2097152, "devices": ["CPU"], "fingerprint": "e8e81bcc2838d9d2ac20b297ac2e5b3393066c8e99aecad6039a178005b7c9f2"}, "draft": {"path": "/models/draft-q8_0.gguf", "bytes": 1319968, "arch": "llama", "quant": "Q8_0", "n_params": 1115264, "n_vocab": 4096, "n_layer": 4, "kv_bytes": 1048576, "devices": ["CPU"], "fingerprint": "950e667cef88a960caad67da020d22ef87a6924e02c303242666dd2f7d0527dc"}}, "params": {"max_tokens": 16, "stop": [], "raw": false, "ctx": 1024, "threads": 1, "gpu": "auto", "draft_gpu": "auto", "rpc": [], "lora": [], "kv_type": "f16", "flash_attn": "auto", "reproducible": false, "mmap": true, "mlock": false, "temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "typical_p": 1.0, "repeat_penalty": 1.0, "presence_penalty": 0.0, "frequency_penalty": 0.0, "penalty_last_n": 64, "dry_multiplier": 0.0, "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": 64, "dry_sequence_breaker": ["\n", ":", "\"", "*"], "xtc_probability": 0.0, "xtc_threshold": 0.1, "logit_bias": [], "draft_temperature": null, "seed": 7, "method": "suffix", "tree": "chain", "k": 16, "length": "fixed", "verify": "coupled", "options": [], "approximate": false, "is_seeded": true, "is_lossless": true}, "timings": {"cache_n": 0, "prompt_n": 58, "prepare_ms": 59.3935849974514, "prompt_ms": 32.85454500291962, "prompt_per_second": 1765.356969480047, "predicted_n": 16, "predicted_ms": 62.392155996349175, "predicted_per_second": 240.4148367765607, "draft_n": 1, "draft_n_accepted": 0, "ttft_ms": 92.82334599993192, "wall_ms": 155.28925199760124, "load_ms": 419.70683699764777}, "spec": {"k": 16, "reproducible": false, "widths": null, "passes": 16, "drafting_passes": 1, "drafted": 1, "accepted": 0, "emitted": 16, "cut": 0, "tokens_per_pass": 1.0, "acceptance": 0.0, "accepted_length": 0.0, "accepted_length_over_k": 0.0, "mean_alpha": 0.0, "tested_per_pos": [1], "accepted_per_pos": [0], "reached_per_pos": [1], "tokens_by_source": {"accepted": 0, "corrected": 1, "bonus": 0, "plain": 15}, "ms": {"draft": 0.8111419883789495, "verify": 32.22362001542933, "sample": 14.645928997197188, "other": 14.711464995343704}, "baseline": {"tok_per_s": 141.7683015813956, "source": "probe", "n_tokens": 2, "ctx": 61, "age_s": 0.039}, "verdict": "This pair demonstrates drafting: it is so small that no time is won.", "speedup": null, "speedup_ci95": [6.757769255313941e-05, 67274.46456678172]}, "memory": {"peak_bytes": 90660864, "kv_bytes": 3145728}, "warnings": [], "versions": {"localspec": "0.1.0", "llama_cpp_python": "0.3.36", "llama_cpp": "0.5.0-dev"}}','[]',15556);
INSERT INTO "message" VALUES(3,'6fxxbkcf',2,'user','And then?',1.79587237556683540344e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(4,'6fxxbkcf',3,'assistant','"You are right, I know not what you think of',1.79587237557458901399e+09,'length',NULL,'[]',15707);
INSERT INTO "message" VALUES(5,'6fxxbwft',NULL,'user','Once upon a time',1.79587238005067896841e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(6,'6fxxbwft',5,'assistant',' there lived an old man and his wife who lived in a',1.79587238005490517616e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(7,'6fxxbwft',6,'user','And then?',1.79587238140819430349e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(8,'6fxxbwft',7,'assistant','The young man was a clever, handsome, handsome, and',1.7958723814106795788e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(9,'6fxxbwft',6,'user','And then what?',1.79587238146701240536e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(10,'6fxxbwft',9,'assistant','One day they were in a very happy state, and lived',1.7958723814750356674e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(11,'6fxxbwft',7,'assistant','One day, one day the old woman came to the farm',1.79587238157084226608e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(12,'6fxxbwft',11,'user','What is this?',1.79587238162715768811e+09,'sent',NULL,'[{"name": "notes.txt", "text": "def add(a, b):\n    return a + b\n"}]',NULL);
INSERT INTO "message" VALUES(13,'6fxxbwft',12,'assistant','This story, however, had been put on in the p',1.79587238163475656506e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(14,'6fxxbwft',13,'user','More',1.7958723817508397102e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(15,'6fxxbwft',14,'assistant',' the country, there lived a man who was called Pet',1.79587238175491547588e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(16,'6fxxbzh3',NULL,'user','A second one',1.79587238359850287442e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(17,'6fxxbzh3',16,'assistant',' did not know that, though he was not frightened, the',1.79587238360285806658e+09,'length',NULL,'[]',15830);
INSERT INTO "message" VALUES(18,'6fxxbzh3',NULL,'user','A third',1.79587238370548033707e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(19,'6fxxbzh3',18,'assistant',' King looked at the little fellow. He was not a handsome',1.79587238371761512755e+09,NULL,NULL,'[]',4194303);
INSERT INTO "message" VALUES(20,'6fxxbz6p',NULL,'user','To be deleted',1.79587238382257056231e+09,'sent',NULL,'[]',NULL);
INSERT INTO "message" VALUES(21,'6fxxbz6p',20,'assistant',' about the bishop which stood on the top of the',1.79587238383097982409e+09,'length',NULL,'[]',15830);
CREATE INDEX message_conversation ON message(conversation);
CREATE INDEX message_parent ON message(parent);
CREATE INDEX message_writer ON message(writer) WHERE finish IS NULL;
CREATE INDEX conversation_updated ON conversation(updated);
DELETE FROM "sqlite_sequence";
INSERT INTO "sqlite_sequence" VALUES('message',21);
COMMIT;
PRAGMA user_version = 1;
