//! One connection to PostgreSQL: every statement that is ever sent.
//!
//! Invariant: a write carries the time, by the server's clock, until when it may begin, and the server ends it a second after it began. So
//! what its caller was told has failed has happened by then or never will, even when a network holds the statement back for minutes.

use std::time::{Duration, Instant};

use mayfly_shards::QueueName;
use tokio::task::JoinHandle;
use tokio_postgres::types::{ToSql, Type};
use tokio_postgres::{Client, NoTls, Row};

use super::reconcile::Writes;
use super::row::{QueueFields, QuotaFields, Rows, parse_uuid, uuid_text};
use super::trouble::Trouble;
use super::{Stamp, Write, schema};
use crate::config::PostgresTarget;
use crate::control::change::Grant;

/// How long one write may take on the server, waits for locks included.
pub(super) const STATEMENT_SPAN: Duration = Duration::from_secs(1);
/// How long a statement that reads or fills all rows, or makes the schema, may take.
pub(super) const BULK_SPAN: Duration = Duration::from_secs(5);
const CONNECT_SPAN: Duration = Duration::from_secs(2);
/// Rows written with one statement.
const FILL_ROWS: usize = 1_000;

/// See the module.
#[derive(Debug)]
pub(super) struct Session {
    client: Client,
    /// Moves the bytes; ends when the connection does.
    mover: JoinHandle<()>,
    /// The server's clock, milliseconds of the Unix epoch, not later than at this point of ours.
    clock: (i64, Instant),
}

/// Whose the rows are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The cluster.
    pub(super) id: u128,
    /// From its log.
    pub(super) is_filled: bool,
    /// Claimed so long ago that whoever did and has not filled them ended on the way.
    pub(super) is_old: bool,
}

impl Drop for Session {
    fn drop(&mut self) {
        self.mover.abort();
    }
}

type Parameter<'a> = (&'a (dyn ToSql + Sync), Type);

impl Session {
    pub(super) async fn connect(target: &PostgresTarget) -> Result<Self, Trouble> {
        let mut config = target.config().clone();
        config.connect_timeout(CONNECT_SPAN).tcp_user_timeout(BULK_SPAN).application_name("mayfly");
        let (client, connection) = config.connect(NoTls).await?;
        let mover = tokio::spawn(async move {
            // Whoever waits for an answer is told what was wrong.
            let _ = connection.await;
        });
        let mut session = Self { client, mover, clock: (0, Instant::now()) };
        let span_ms = STATEMENT_SPAN.as_millis();
        let set = format!("SET statement_timeout = {span_ms}; SET lock_timeout = {span_ms}; SET client_min_messages = warning");
        session.client.batch_execute(&set).await?;
        session.read_clock().await?;
        let encoding: String = session.client.query_typed_one("SELECT current_setting('server_encoding')", &[]).await?.try_get(0)?;
        if encoding == "UTF8" { Ok(session) } else { Err(Trouble::Encoding(encoding)) }
    }

    /// Waits until the connection is at its end.
    pub(super) async fn ended(&mut self) {
        let _ = (&mut self.mover).await;
    }

    async fn read_clock(&mut self) -> Result<(), Trouble> {
        let row = self.client.query_typed_one("SELECT (extract(epoch FROM clock_timestamp()) * 1000)::bigint", &[]).await?;
        self.clock = (row.try_get(0)?, Instant::now());
        Ok(())
    }

    /// Sees to it that the schema is there, gives no version twice, and is some cluster's: `candidate`'s, if it was nobody's.
    pub(super) async fn prepare(&self, version_max: u64, candidate: u128) -> Result<Owner, Trouble> {
        schema::ensure(&self.client, BULK_SPAN.as_millis()).await?;
        schema::advance(&self.client, version_max).await?;
        if let Some(owner) = self.owner().await? {
            return Ok(owner);
        }
        self.client.execute_typed(CLAIM, &[text(&uuid_text(candidate))]).await?;
        self.owner().await?.ok_or(Trouble::Overtaken)
    }

    async fn owner(&self) -> Result<Option<Owner>, Trouble> {
        let Some(row) = self.client.query_typed_opt(OWNER, &[]).await? else { return Ok(None) };
        let id = parse_uuid(row.try_get(0)?).unwrap_or_default();
        Ok(Some(Owner { id, is_filled: row.try_get(1)?, is_old: row.try_get(2)? }))
    }

    /// All rows, of one point in time.
    pub(super) async fn read(&mut self) -> Result<Rows, Trouble> {
        self.read_clock().await?;
        let begin = format!("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SET LOCAL statement_timeout = {}", BULK_SPAN.as_millis());
        self.client.batch_execute(&begin).await?;
        let mut rows = Rows::default();
        // A text is cut far behind where the longest that is right ends.
        let time = "CASE WHEN isfinite(updated_at) THEN floor(extract(epoch FROM updated_at) * 1000)::bigint END";
        let queues = format!(
            "SELECT tenant_id::text, left(queue::text, 1024), left(options::text, 65536), version, {time} FROM mayfly.ephemeral_queues"
        );
        for row in self.client.query_typed(&queues, &[]).await? {
            add_queue(&mut rows, &row)?;
        }
        let quota = format!(
            "SELECT tenant_id::text, enabled, max_bytes::bigint, max_queues::bigint, max_msgs_per_sec::bigint, max_parked::bigint, version, {time}
             FROM mayfly.ephemeral_quota"
        );
        for row in self.client.query_typed(&quota, &[]).await? {
            add_quota(&mut rows, &row)?;
        }
        self.client.batch_execute("COMMIT").await?;
        Ok(rows)
    }

    /// One write, which must have begun at `begun_by`.
    pub(super) async fn write(&self, write: &Write, begun_by: Instant) -> Result<Stamp, Trouble> {
        let begun_by_ms = self.server_time_ms(begun_by);
        let begun_by = (&begun_by_ms as &(dyn ToSql + Sync), Type::INT8);
        let row = match write {
            Write::Declare { queue, options } => {
                let (tenant, name, options) = (uuid_text(queue.tenant.0), &*queue.name, options.plain_text());
                let parameters = [begun_by, text(&tenant), (&name, Type::TEXT), text(&options)];
                self.client.query_typed_opt(DECLARE, &parameters).await
            }
            Write::Delete { queue } => {
                let (tenant, name) = (uuid_text(queue.tenant.0), &*queue.name);
                self.client.query_typed_opt(DELETE, &[begun_by, text(&tenant), (&name, Type::TEXT)]).await
            }
            Write::Grant { tenant, grant: Some(grant) } => {
                let (tenant, bounds) = (uuid_text(tenant.0), bounds(grant));
                let [bytes, queues, messages, parked] = bounds.each_ref().map(|bound| (bound as &(dyn ToSql + Sync), Type::INT8));
                let enabled = (&grant.is_enabled as &(dyn ToSql + Sync), Type::BOOL);
                self.client.query_typed_opt(GRANT, &[begun_by, text(&tenant), enabled, bytes, queues, messages, parked]).await
            }
            Write::Grant { tenant, grant: None } => {
                let tenant = uuid_text(tenant.0);
                self.client.query_typed_opt(REVOKE, &[begun_by, text(&tenant)]).await
            }
        };
        stamp(&row?.ok_or(Trouble::Late)?, 0)
    }

    /// Declarations of different queues, all of them or none, begun at `begun_by`. A stamp for each; None: it came too late.
    pub(super) async fn declare(&self, declarations: &[&Write], begun_by: Instant) -> Result<Vec<Option<Stamp>>, Trouble> {
        let begun_by_ms = self.server_time_ms(begun_by);
        let parts = declarations.iter().filter_map(|write| match write {
            Write::Declare { queue, options } => Some((uuid_text(queue.tenant.0), &*queue.name, options.plain_text())),
            Write::Delete { .. } | Write::Grant { .. } => None,
        });
        let (mut tenants, mut names, mut options) = (Vec::new(), Vec::new(), Vec::new());
        for (tenant, name, text) in parts {
            tenants.push(tenant);
            names.push(name);
            options.push(text);
        }
        let parameters: [Parameter<'_>; 4] =
            [(&begun_by_ms, Type::INT8), (&tenants, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY), (&options, Type::TEXT_ARRAY)];
        let mut stamps = vec![None; tenants.len()];
        for row in self.client.query_typed(DECLARE_ALL, &parameters).await? {
            let (tenant, name): (&str, &str) = (row.try_get(0)?, row.try_get(1)?);
            let place = (0..stamps.len()).find(|place| tenants[*place] == tenant && names[*place] == name);
            if let Some(place) = place {
                stamps[place] = Some(stamp(&row, 2)?);
            }
        }
        Ok(stamps)
    }

    fn server_time_ms(&self, at: Instant) -> i64 {
        let (server_ms, ours) = self.clock;
        server_ms.saturating_add(i64::try_from(at.saturating_duration_since(ours).as_millis()).unwrap_or(i64::MAX))
    }

    /// Writes what rows lack, all or nothing, and notes that the rows have been filled from the log of `filled`.
    pub(super) async fn fill(&self, writes: &Writes, filled: Option<u128>) -> Result<(), Trouble> {
        self.client.batch_execute(&format!("BEGIN; SET LOCAL statement_timeout = {}", BULK_SPAN.as_millis())).await?;
        let done = self.fill_within(writes, filled).await;
        self.client.batch_execute(if done.is_ok() { "COMMIT" } else { "ROLLBACK" }).await?;
        done
    }

    async fn fill_within(&self, writes: &Writes, filled: Option<u128>) -> Result<(), Trouble> {
        for rows in writes.declarations.chunks(FILL_ROWS) {
            self.fill_declarations(rows).await?;
        }
        for rows in writes.renewed_declarations.chunks(FILL_ROWS) {
            let (tenants, names) = keys(rows.iter().map(|(queue, _)| queue));
            let seen: Vec<i64> = rows.iter().map(|(_, seen)| signed(*seen)).collect();
            let parameters = [(&tenants as _, Type::TEXT_ARRAY), (&names as _, Type::TEXT_ARRAY), (&seen as _, Type::INT8_ARRAY)];
            self.client.execute_typed(RENEW_DECLARATIONS, &parameters).await?;
        }
        for (tenant, grant, seen) in &writes.grants {
            let (tenant, bounds, seen) = (uuid_text(tenant.0), bounds(grant), seen.map(signed));
            let [bytes, queues, messages, parked] = bounds.each_ref().map(|bound| (bound as &(dyn ToSql + Sync), Type::INT8));
            let enabled: Parameter<'_> = (&grant.is_enabled, Type::BOOL);
            let of_row = [(&seen as _, Type::INT8), text(&tenant), enabled, bytes, queues, messages, parked];
            self.client.execute_typed(if seen.is_some() { MEND_GRANT } else { ADD_GRANT }, &of_row).await?;
        }
        for (tenant, seen) in &writes.renewed_grants {
            let (tenant, seen) = (uuid_text(tenant.0), signed(*seen));
            self.client.execute_typed(RENEW_GRANT, &[text(&tenant), (&seen, Type::INT8)]).await?;
        }
        if let Some(id) = filled {
            self.client.execute_typed(FILLED, &[text(&uuid_text(id))]).await?;
        }
        Ok(())
    }

    async fn fill_declarations(&self, rows: &[(QueueName, crate::api::declaration::DeclaredOptions, Option<u64>)]) -> Result<(), Trouble> {
        let (tenants, names) = keys(rows.iter().map(|(queue, ..)| queue));
        let options: Vec<String> = rows.iter().map(|(_, options, _)| options.plain_text()).collect();
        let seen: Vec<Option<i64>> = rows.iter().map(|(.., seen)| seen.map(signed)).collect();
        let parameters: [Parameter<'_>; 4] =
            [(&tenants, Type::TEXT_ARRAY), (&names, Type::TEXT_ARRAY), (&options, Type::TEXT_ARRAY), (&seen, Type::INT8_ARRAY)];
        self.client.execute_typed(ADD_DECLARATIONS, &parameters).await?;
        self.client.execute_typed(MEND_DECLARATIONS, &parameters).await?;
        Ok(())
    }
}

const OWNER: &str = "SELECT id::text, filled_at IS NOT NULL, made_at < now() - interval '1 minute' FROM mayfly.cluster";

const FILLED: &str = "UPDATE mayfly.cluster SET filled_at = now() WHERE id = $1::text::uuid AND filled_at IS NULL";

const CLAIM: &str = "INSERT INTO mayfly.cluster (id) VALUES ($1::text::uuid) ON CONFLICT DO NOTHING";

const DECLARE: &str = "
INSERT INTO mayfly.ephemeral_queues (tenant_id, queue, options)
SELECT $2::text::uuid, $3, $4::text::jsonb WHERE extract(epoch FROM clock_timestamp()) * 1000 < $1
ON CONFLICT (tenant_id, queue) DO UPDATE SET options = EXCLUDED.options
RETURNING version, floor(extract(epoch FROM updated_at) * 1000)::bigint";

const DECLARE_ALL: &str = "
INSERT INTO mayfly.ephemeral_queues (tenant_id, queue, options)
SELECT tenant::uuid, queue, options::jsonb FROM unnest($2::text[], $3::text[], $4::text[]) AS new(tenant, queue, options)
 WHERE extract(epoch FROM clock_timestamp()) * 1000 < $1
ON CONFLICT (tenant_id, queue) DO UPDATE SET options = EXCLUDED.options
RETURNING tenant_id::text, queue, version, floor(extract(epoch FROM updated_at) * 1000)::bigint";

/// The version is taken once the row is locked, so that it is higher than the row's; and also when there is no row.
const DELETE: &str = "
WITH due AS MATERIALIZED (SELECT clock_timestamp() AS at),
     gone AS (DELETE FROM mayfly.ephemeral_queues USING due
               WHERE tenant_id = $2::text::uuid AND queue = $3 AND extract(epoch FROM at) * 1000 < $1
              RETURNING nextval('mayfly.row_version') AS version)
SELECT coalesce((SELECT version FROM gone), nextval('mayfly.row_version')), (extract(epoch FROM at) * 1000)::bigint
  FROM due WHERE extract(epoch FROM at) * 1000 < $1";

const GRANT: &str = "
INSERT INTO mayfly.ephemeral_quota (tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec, max_parked)
SELECT $2::text::uuid, $3, $4, $5, $6, $7 WHERE extract(epoch FROM clock_timestamp()) * 1000 < $1
ON CONFLICT (tenant_id) DO UPDATE SET enabled = EXCLUDED.enabled, max_bytes = EXCLUDED.max_bytes, max_queues = EXCLUDED.max_queues,
    max_msgs_per_sec = EXCLUDED.max_msgs_per_sec, max_parked = EXCLUDED.max_parked
RETURNING version, floor(extract(epoch FROM updated_at) * 1000)::bigint";

const REVOKE: &str = "
WITH due AS MATERIALIZED (SELECT clock_timestamp() AS at),
     gone AS (DELETE FROM mayfly.ephemeral_quota USING due WHERE tenant_id = $2::text::uuid AND extract(epoch FROM at) * 1000 < $1
              RETURNING nextval('mayfly.row_version') AS version)
SELECT coalesce((SELECT version FROM gone), nextval('mayfly.row_version')), (extract(epoch FROM at) * 1000)::bigint
  FROM due WHERE extract(epoch FROM at) * 1000 < $1";

const ADD_DECLARATIONS: &str = "
INSERT INTO mayfly.ephemeral_queues (tenant_id, queue, options)
SELECT tenant::uuid, queue, options::jsonb FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS new(tenant, queue, options, seen)
 WHERE seen IS NULL
ON CONFLICT (tenant_id, queue) DO NOTHING";

const MEND_DECLARATIONS: &str = "
UPDATE mayfly.ephemeral_queues AS held SET options = new.options::jsonb
  FROM unnest($1::text[], $2::text[], $3::text[], $4::bigint[]) AS new(tenant, queue, options, seen)
 WHERE held.tenant_id = new.tenant::uuid AND held.queue = new.queue AND coalesce(held.version, 0) = new.seen";

const RENEW_DECLARATIONS: &str = "
UPDATE mayfly.ephemeral_queues AS held SET options = held.options
  FROM unnest($1::text[], $2::text[], $3::bigint[]) AS old(tenant, queue, seen)
 WHERE held.tenant_id = old.tenant::uuid AND held.queue = old.queue AND coalesce(held.version, 0) = old.seen";

const ADD_GRANT: &str = "
INSERT INTO mayfly.ephemeral_quota (tenant_id, enabled, max_bytes, max_queues, max_msgs_per_sec, max_parked)
SELECT $2::text::uuid, $3, $4, $5, $6, $7 WHERE $1::bigint IS NULL ON CONFLICT (tenant_id) DO NOTHING";

const MEND_GRANT: &str = "
UPDATE mayfly.ephemeral_quota SET enabled = $3, max_bytes = $4, max_queues = $5, max_msgs_per_sec = $6, max_parked = $7
 WHERE tenant_id = $2::text::uuid AND coalesce(version, 0) = $1";

const RENEW_GRANT: &str =
    "UPDATE mayfly.ephemeral_quota SET enabled = enabled WHERE tenant_id = $1::text::uuid AND coalesce(version, 0) = $2";

/// A row's version and time, in the columns from `at` on.
fn stamp(row: &Row, at: usize) -> Result<Stamp, Trouble> {
    let number = |at| row.try_get::<_, i64>(at).map(|number| u64::try_from(number).unwrap_or(0));
    Ok(Stamp { version: number(at)?, updated_at_ms: number(at + 1)? })
}

fn text(text: &String) -> Parameter<'_> {
    (text, Type::TEXT)
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

fn bounds(grant: &Grant) -> [Option<i64>; 4] {
    [grant.bytes_max, grant.queues_max, grant.messages_per_second_max, grant.parked_max].map(|bound| bound.map(signed))
}

fn keys<'a>(queues: impl Iterator<Item = &'a QueueName>) -> (Vec<String>, Vec<&'a str>) {
    queues.map(|queue: &QueueName| (uuid_text(queue.tenant.0), &*queue.name)).unzip()
}

fn add_queue(rows: &mut Rows, row: &Row) -> Result<(), Trouble> {
    rows.add_queue(QueueFields {
        tenant: row.try_get(0)?,
        queue: row.try_get(1)?,
        options: row.try_get(2)?,
        version: row.try_get(3)?,
        updated_at_ms: row.try_get(4)?,
    });
    Ok(())
}

fn add_quota(rows: &mut Rows, row: &Row) -> Result<(), Trouble> {
    rows.add_quota(QuotaFields {
        tenant: row.try_get(0)?,
        is_enabled: row.try_get(1)?,
        bounds: [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?],
        version: row.try_get(6)?,
        updated_at_ms: row.try_get(7)?,
    });
    Ok(())
}
