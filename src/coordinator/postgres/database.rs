//! Connections, and one call: one message to the database, one answer.
//!
//! Invariant: a call needs no state of a session, so that it passes a pooler that gives every
//! transaction another one. Hence the simple protocol with values spelled out: with the extended
//! one, sqlx parses a statement and runs it in two transactions, and in between a pooler may
//! change the session, for one that lacks the statement or has another under its name. Hence also
//! limits that are set with each call. Deliberately absent: retries. A call whose connection broke
//! may have been committed.

use std::fmt::Write;
use std::time::Duration;

use prometheus::Registry;
use serde::de::DeserializeOwned;
use sqlx::postgres::{PgConnectOptions, PgPool};
use sqlx::{AssertSqlSafe, Connection, Row};
use tokio::time::timeout;

use crate::clock::Clock;
use crate::coordinator::CoordinatorError;
use crate::fence::Resource;
use crate::metrics::{Connections, PoolMetrics};
use crate::postgres_pool;

/// Calls under way at a time.
const CONNECTIONS: u32 = 8;
/// For a connection, which may have to be made.
const CONNECT_WITHIN: Duration = Duration::from_secs(3);
/// The server gives up first, so that its word on the matter comes within [`ANSWER_WITHIN`].
const LIMITS: &str = "SET LOCAL lock_timeout = '3s'; SET LOCAL statement_timeout = '4s';";
/// For the answer. It bounds the commit as well, which no limit of the server does: it may wait
/// for a standby.
const ANSWER_WITHIN: Duration = Duration::from_secs(5);
/// A connection that was unused for longer is tried before it is used.
const UNUSED: Duration = Duration::from_secs(1);

/// The database. Cheap to clone.
#[derive(Clone, Debug)]
pub(super) struct Database {
    pool: PgPool,
    metrics: PoolMetrics,
    clock: Clock,
}

impl Database {
    /// Connects when it is first asked.
    pub(super) fn new(options: PgConnectOptions, clock: Clock) -> Database {
        let metrics = PoolMetrics::new("coordinator");
        let connected = metrics.clone();
        let pool = postgres_pool::options()
            .max_connections(CONNECTIONS)
            .acquire_timeout(CONNECT_WITHIN)
            .test_before_acquire(false)
            .after_connect(move |_, _| {
                connected.connected();
                Box::pin(async { Ok(()) })
            })
            .before_acquire(|connection, meta| {
                Box::pin(async move {
                    if meta.idle_for > UNUSED {
                        connection.ping().await?;
                    }
                    Ok(true)
                })
            })
            .connect_lazy_with(options);
        Database { pool, metrics, clock }
    }

    pub(super) fn register(&self, registry: &Registry) -> prometheus::Result<()> {
        let pool = self.pool.clone();
        self.metrics.register(registry, CONNECTIONS, move || Connections {
            all: pool.size(),
            idle: pool.num_idle(),
        })
    }

    /// Evaluates `call`, which has to be built of constants, numbers and the literals of this
    /// module, in one transaction; answers after its commit. What may change something must not be
    /// dropped halfway: call it from a task.
    pub(super) async fn ask<T: DeserializeOwned>(&self, call: &str) -> Result<T, CoordinatorError> {
        let answer = self.first_column(format!("{LIMITS} SELECT ({call})::text")).await?;
        let read = serde_json::from_str(answer.as_deref().unwrap_or("null"));
        read.map_err(|error| {
            CoordinatorError::Unavailable(format!("an answer that makes no sense: {error}"))
        })
    }

    /// Runs a script in one transaction; answers the first column of its first row.
    pub(super) async fn first_column(
        &self,
        script: String,
    ) -> Result<Option<String>, CoordinatorError> {
        let began = self.clock.now();
        // Boxed, as every move of a call would copy it.
        let acquired = Box::pin(self.pool.acquire()).await;
        self.metrics.waited(self.clock.now().since(began));
        let mut connection = acquired.map_err(failed)?;
        // To the end, and not to the first row: the commit comes after that.
        let rows = sqlx::raw_sql(AssertSqlSafe(script)).fetch_all(&mut *connection);
        let answer = timeout(ANSWER_WITHIN, rows).await;
        if !matches!(answer, Ok(Ok(_) | Err(sqlx::Error::Database(_)))) {
            // Nobody knows what this connection will say next.
            drop(connection.detach());
        }
        let rows = answer.map_err(|_| {
            CoordinatorError::Unavailable(format!(
                "PostgreSQL: no answer within {} s",
                ANSWER_WITHIN.as_secs()
            ))
        })?;
        match rows.map_err(failed)?.first() {
            Some(row) => row.try_get(0).map_err(failed),
            None => Ok(None),
        }
    }

    pub(super) async fn close(&self) {
        self.pool.close().await;
    }
}

fn failed(error: sqlx::Error) -> CoordinatorError {
    CoordinatorError::Unavailable(match error {
        sqlx::Error::PoolTimedOut => {
            let seconds = CONNECT_WITHIN.as_secs();
            format!("PostgreSQL: no connection within {seconds} s; is it up, and reachable?")
        }
        // It belongs to a session that listens, which this is not.
        sqlx::Error::Protocol(what) if what.contains("NotificationResponse") => {
            "PostgreSQL: LISTEN went through a pooler, which passes news on to everybody; set \
             coordinator.listen_url to the server itself, or to none"
                .to_owned()
        }
        error => format!("PostgreSQL: {error}"),
    })
}

/// A text as SQL, whatever is in it and whatever the server takes a backslash for.
pub(super) fn text(value: &str) -> String {
    let mut literal = String::with_capacity(64 + 2 * value.len());
    literal.push_str("convert_from(decode('");
    for byte in value.bytes() {
        // Writing to a string does not fail.
        let _ = write!(literal, "{byte:02x}");
    }
    literal.push_str("','hex'),'UTF8')");
    literal
}

/// Resources as an array of texts.
pub(super) fn texts(values: &[Resource]) -> String {
    let values: Vec<_> = values.iter().map(|value| text(value.as_str())).collect();
    format!("ARRAY[{}]::text[]", values.join(","))
}

/// Milliseconds, as a column holds them.
pub(super) fn millis(span: Duration) -> i64 {
    i64::try_from(span.as_millis()).unwrap_or(i64::MAX)
}
