//! The schema `mayfly`: made, or mended, by the first session that finds it otherwise.
//!
//! Several nodes may start at once: a lock lets one of them make it. Tables that were there keep their rows and their other columns. What
//! is as it should be is not touched, so that a user without the right to make anything can run a node on a schema that was made for it.

use tokio_postgres::Client;
use tokio_postgres::types::Type;

use super::trouble::Trouble;

/// "mayfly" in ASCII: whoever makes the schema holds this lock.
const LOCK: &str = "SELECT pg_advisory_xact_lock(120265416010873)";

const IS_MADE: &str = "
SELECT to_regclass('mayfly.row_version') IS NOT NULL
   AND 15 = (SELECT count(*) FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid JOIN pg_namespace n ON n.oid = c.relnamespace
              WHERE n.nspname = 'mayfly' AND NOT a.attisdropped AND (c.relname, a.attname) IN (
                ('cluster', 'id'), ('cluster', 'filled_at'),
                ('ephemeral_queues', 'tenant_id'), ('ephemeral_queues', 'queue'), ('ephemeral_queues', 'options'),
                ('ephemeral_queues', 'updated_at'), ('ephemeral_queues', 'version'),
                ('ephemeral_quota', 'tenant_id'), ('ephemeral_quota', 'enabled'), ('ephemeral_quota', 'max_bytes'),
                ('ephemeral_quota', 'max_queues'), ('ephemeral_quota', 'max_msgs_per_sec'), ('ephemeral_quota', 'max_parked'),
                ('ephemeral_quota', 'updated_at'), ('ephemeral_quota', 'version')))
   AND 2 = (SELECT count(*) FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid JOIN pg_namespace n ON n.oid = c.relnamespace
             WHERE n.nspname = 'mayfly' AND t.tgname = 'mayfly_stamp' AND c.relname IN ('ephemeral_queues', 'ephemeral_quota'))
   AND to_regclass('mayfly.ephemeral_queues_by_name') IS NOT NULL AND to_regclass('mayfly.ephemeral_quota_by_tenant') IS NOT NULL";

/// Rows that have no version get one; the trigger comes after them, so that they keep their time.
const MAKE: &str = "
CREATE SCHEMA IF NOT EXISTS mayfly;
CREATE SEQUENCE IF NOT EXISTS mayfly.row_version;
CREATE TABLE IF NOT EXISTS mayfly.cluster (
    is_one    boolean PRIMARY KEY DEFAULT true CHECK (is_one),
    id        uuid NOT NULL,
    made_at   timestamptz NOT NULL DEFAULT now(),
    filled_at timestamptz);
CREATE TABLE IF NOT EXISTS mayfly.ephemeral_queues (tenant_id uuid NOT NULL, queue text NOT NULL);
ALTER TABLE mayfly.ephemeral_queues
    ADD COLUMN IF NOT EXISTS options    jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN IF NOT EXISTS updated_at timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN IF NOT EXISTS version    bigint;
CREATE TABLE IF NOT EXISTS mayfly.ephemeral_quota (tenant_id uuid NOT NULL);
ALTER TABLE mayfly.ephemeral_quota
    ADD COLUMN IF NOT EXISTS enabled          boolean NOT NULL DEFAULT true,
    ADD COLUMN IF NOT EXISTS max_bytes        bigint,
    ADD COLUMN IF NOT EXISTS max_queues       bigint,
    ADD COLUMN IF NOT EXISTS max_msgs_per_sec bigint,
    ADD COLUMN IF NOT EXISTS max_parked       bigint,
    ADD COLUMN IF NOT EXISTS updated_at       timestamptz NOT NULL DEFAULT now(),
    ADD COLUMN IF NOT EXISTS version          bigint;
UPDATE mayfly.ephemeral_queues SET version = nextval('mayfly.row_version') WHERE version IS NULL;
UPDATE mayfly.ephemeral_quota SET version = nextval('mayfly.row_version') WHERE version IS NULL;
CREATE UNIQUE INDEX IF NOT EXISTS ephemeral_queues_by_name ON mayfly.ephemeral_queues (tenant_id, queue);
CREATE UNIQUE INDEX IF NOT EXISTS ephemeral_quota_by_tenant ON mayfly.ephemeral_quota (tenant_id);
CREATE OR REPLACE FUNCTION mayfly.stamp() RETURNS trigger
    LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    NEW.version := nextval('mayfly.row_version');
    NEW.updated_at := clock_timestamp();
    RETURN NEW;
END $$;
DROP TRIGGER IF EXISTS mayfly_stamp ON mayfly.ephemeral_queues;
CREATE TRIGGER mayfly_stamp BEFORE INSERT OR UPDATE ON mayfly.ephemeral_queues FOR EACH ROW EXECUTE FUNCTION mayfly.stamp();
DROP TRIGGER IF EXISTS mayfly_stamp ON mayfly.ephemeral_quota;
CREATE TRIGGER mayfly_stamp BEFORE INSERT OR UPDATE ON mayfly.ephemeral_quota FOR EACH ROW EXECUTE FUNCTION mayfly.stamp();";

/// Sees to it that the schema is there.
pub(super) async fn ensure(client: &Client, statement_span_ms: u128) -> Result<(), Trouble> {
    if is_made(client).await? {
        return Ok(());
    }
    client.batch_execute(&format!("BEGIN; SET LOCAL statement_timeout = {statement_span_ms}; SET LOCAL lock_timeout = 0; {LOCK}")).await?;
    let made = if is_made(client).await? { Ok(()) } else { client.batch_execute(MAKE).await };
    client.batch_execute(if made.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    Ok(made?)
}

async fn is_made(client: &Client) -> Result<bool, Trouble> {
    Ok(client.query_typed_one(IS_MADE, &[]).await?.try_get(0)?)
}

/// Sees to it that the sequence goes on behind every version known. No row may get one while it moves, so writers wait.
pub(super) async fn advance(client: &Client, version_max: u64) -> Result<(), Trouble> {
    let version_max = i64::try_from(version_max).unwrap_or(i64::MAX - 1);
    let behind = "SELECT last_value < $1 FROM mayfly.row_version";
    if !client.query_typed_one(behind, &[(&version_max, Type::INT8)]).await?.try_get::<_, bool>(0)? {
        return Ok(());
    }
    let lock = "BEGIN; LOCK TABLE mayfly.ephemeral_queues, mayfly.ephemeral_quota IN SHARE ROW EXCLUSIVE MODE";
    client.batch_execute(lock).await?;
    let advance = "SELECT setval('mayfly.row_version', $1) FROM mayfly.row_version WHERE last_value < $1";
    let advanced = client.query_typed(advance, &[(&version_max, Type::INT8)]).await;
    client.batch_execute(if advanced.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
    advanced?;
    Ok(())
}
