-- The schema of e3's repositories (doc/format.md). Keys are bytes: they are ordered as such, and may hold any UTF-8.
CREATE SCHEMA IF NOT EXISTS e3;

-- One row is one record. names and contents are its side fields.
CREATE TABLE IF NOT EXISTS e3.records (
	repository text COLLATE "C" NOT NULL,
	partition  bytea NOT NULL,
	sort       bytea NOT NULL,
	version    text COLLATE "C" NOT NULL, -- chosen at random by the writer
	replaced   text COLLATE "C",          -- the version before
	value      bytea NOT NULL,
	names      bytea[] NOT NULL DEFAULT '{}',
	contents   bytea[] NOT NULL DEFAULT '{}',
	PRIMARY KEY (repository, partition, sort)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05);

-- Executions are found by their ids as well.
CREATE INDEX IF NOT EXISTS executions ON e3.records (repository, sort, partition)
	WHERE partition >= 'EXECUTION/'::bytea AND partition < 'EXECUTION0'::bytea;

-- One row is the head of one stream.
CREATE TABLE IF NOT EXISTS e3.streams (
	repository text COLLATE "C" NOT NULL,
	partition  bytea NOT NULL,
	sort       bytea NOT NULL,
	stream     text COLLATE "C" NOT NULL, -- its chunks; a later stream of this key has another
	version    text COLLATE "C" NOT NULL,
	replaced   text COLLATE "C",
	size       bigint NOT NULL,
	sealed     boolean NOT NULL DEFAULT false,
	cuts       bigint NOT NULL DEFAULT 0,
	cut_to     bigint NOT NULL DEFAULT 0, -- its size after the last cut
	PRIMARY KEY (repository, partition, sort)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05);

-- The bytes of a stream from start on.
CREATE TABLE IF NOT EXISTS e3.chunks (
	repository text COLLATE "C" NOT NULL,
	stream     text COLLATE "C" NOT NULL,
	start      bigint NOT NULL,
	data       bytea NOT NULL,
	PRIMARY KEY (repository, stream, start)
);
