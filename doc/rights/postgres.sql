-- The rights of a reader, a writer and an administrator of one repository in PostgreSQL (../rights.md). The user who made
-- the schema e3 runs it, after e3 init, with the repository's name for REPOSITORY:
--   sed s/REPOSITORY/forecast/ postgres.sql | psql -v ON_ERROR_STOP=1 <database>
-- and then gives people roles: GRANT "forecast_writer" TO ada.

CREATE ROLE "REPOSITORY_reader";
CREATE ROLE "REPOSITORY_writer" IN ROLE "REPOSITORY_reader";
CREATE ROLE "REPOSITORY_administrator" IN ROLE "REPOSITORY_writer";

GRANT USAGE ON SCHEMA e3 TO "REPOSITORY_reader";
GRANT SELECT ON e3.records, e3.streams, e3.chunks TO "REPOSITORY_reader";
GRANT INSERT, UPDATE, DELETE ON e3.records, e3.streams, e3.chunks TO "REPOSITORY_writer";

-- Rows of other repositories are not seen.
ALTER TABLE e3.records ENABLE ROW LEVEL SECURITY;
ALTER TABLE e3.streams ENABLE ROW LEVEL SECURITY;
ALTER TABLE e3.chunks ENABLE ROW LEVEL SECURITY;

CREATE POLICY "REPOSITORY read" ON e3.records FOR SELECT TO "REPOSITORY_reader" USING (repository = 'REPOSITORY');
CREATE POLICY "REPOSITORY read" ON e3.streams FOR SELECT TO "REPOSITORY_reader" USING (repository = 'REPOSITORY');
CREATE POLICY "REPOSITORY read" ON e3.chunks FOR SELECT TO "REPOSITORY_reader" USING (repository = 'REPOSITORY');

-- Administrators alone write settings, the description and tombstones, and delete executions.
CREATE POLICY "REPOSITORY create" ON e3.records FOR INSERT TO "REPOSITORY_writer"
	WITH CHECK (repository = 'REPOSITORY' AND split_part(encode(partition, 'escape'), '/', 1) NOT IN ('SETTINGS', 'FORMAT', 'TOMBSTONE'));
CREATE POLICY "REPOSITORY replace" ON e3.records FOR UPDATE TO "REPOSITORY_writer" USING (repository = 'REPOSITORY')
	WITH CHECK (repository = 'REPOSITORY' AND split_part(encode(partition, 'escape'), '/', 1) NOT IN ('SETTINGS', 'FORMAT', 'TOMBSTONE'));
CREATE POLICY "REPOSITORY delete" ON e3.records FOR DELETE TO "REPOSITORY_writer"
	USING (repository = 'REPOSITORY' AND split_part(encode(partition, 'escape'), '/', 1) NOT IN ('SETTINGS', 'FORMAT', 'TOMBSTONE', 'EXECUTION'));
CREATE POLICY "REPOSITORY write" ON e3.streams TO "REPOSITORY_writer" USING (repository = 'REPOSITORY');
CREATE POLICY "REPOSITORY write" ON e3.chunks TO "REPOSITORY_writer" USING (repository = 'REPOSITORY');
CREATE POLICY "REPOSITORY administer" ON e3.records TO "REPOSITORY_administrator" USING (repository = 'REPOSITORY');
