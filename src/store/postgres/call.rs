//! One call of one function of the schema.

use std::sync::Arc;
use std::time::Duration;

use serde::Serialize;
use serde::de::DeserializeOwned;
use sqlx::postgres::PgRow;
use sqlx::{AssertSqlSafe, Row};
use tokio::time::{Instant, timeout_at};

use super::{Inner, Postgres};
use crate::metrics::Operation;
use crate::store::StoreError;

/// Of a call with all of its attempts. Below the ten seconds after which callers stop waiting.
const CALL_WITHIN: Duration = Duration::from_secs(9);
/// Of one attempt. Above the server's own limits, so that it says what it waited for.
const ATTEMPT_WITHIN: Duration = Duration::from_secs(8);
/// Between attempts, while connections fail.
const PAUSE: Duration = Duration::from_millis(50);

/// Before each call, in its transaction, as no setting of a session survives a pooler. The isolation is what
/// the functions rest on. The wait for a synchronous standby is not under these limits. Compiling a plan takes
/// a hundred times as long as a call, and the server does so where it takes a table for large.
const TERMS: &str = "SET TRANSACTION ISOLATION LEVEL READ COMMITTED, READ WRITE; SET LOCAL jit = off; \
                     SET LOCAL statement_timeout = '7s'; SET LOCAL lock_timeout = '6s'; ";

impl Postgres {
    /// Calls `function` with `asked` and reads its answer.
    ///
    /// # Errors
    /// Nobody knows whether it happened.
    pub(super) async fn call<A: Serialize, T: DeserializeOwned>(
        &self,
        operation: Operation,
        function: &'static str,
        asked: &A,
    ) -> Result<T, StoreError> {
        let asked = serde_json::to_string(asked).map_err(|error| failed(&error))?;
        let sql = Arc::from(format!("{TERMS}SELECT {function}({}::jsonb)::text", literal(&asked)));
        let (store, began) = (self.clone(), self.0.clock.now());
        // A task of its own: a call that were dropped half way would leave its connection in an unknown state.
        let work = self.0.tasks.spawn(async move {
            let until = Instant::now() + CALL_WITHIN;
            let answered =
                timeout_at(until, store.try_until_connected(operation, sql, until)).await;
            let answered = answered.unwrap_or_else(|_| Err("it took longer than 9 s".into()));
            store.0.metrics.done(operation, store.0.clock.now().since(began), answered.is_ok());
            answered
        });
        let answer = match work.await {
            Ok(answered) => answered.map_err(StoreError),
            Err(ended) => Err(failed(&ended)),
        };
        let answer = answer.inspect_err(|error| tracing::warn!(function, %error, "store"))?;
        serde_json::from_str(&answer).map_err(|error| failed(&error))
    }

    /// After a restart of the server every connection of the pool is dead, and each says so only once.
    async fn try_until_connected(
        &self,
        operation: Operation,
        sql: Arc<str>,
        until: Instant,
    ) -> Result<String, Arc<str>> {
        let mut is_first = true;
        loop {
            match self.attempt(operation, is_first, &sql, until).await {
                Ok(answer) => return Ok(answer),
                Err(error) if is_about_the_connection(&error) => {
                    tracing::debug!(%error, "trying the store again");
                    is_first = false;
                    tokio::time::sleep(PAUSE).await;
                }
                Err(error) => return Err(said(&error)),
            }
        }
    }

    /// Has ended by `until`: one that is dropped while it waits for an answer leaves a connection that the pool
    /// waits for as well before it gives it to anybody.
    async fn attempt(
        &self,
        operation: Operation,
        is_first: bool,
        sql: &Arc<str>,
        until: Instant,
    ) -> Result<String, sqlx::Error> {
        let Inner { at_hand, trust, .. } = &*self.0;
        let is_raise = operation == Operation::Raise;
        let began = self.0.clock.now();
        let taken = if is_raise && is_first {
            at_hand.take().await
        } else {
            at_hand.one_of_the_pool().await
        };
        self.0.pool_metrics.waited(self.0.clock.now().since(began));
        let mut one = taken?;
        let query = sqlx::raw_sql(AssertSqlSafe(Arc::clone(sql)));
        // All rows: the answer counts only once the server is through, and that is after the commit.
        let until = until.min(Instant::now() + ATTEMPT_WITHIN);
        let answered = timeout_at(until, query.fetch_all(&mut *one.connection)).await;
        let is_whole = match &answered {
            Ok(Ok(_)) => true,
            Ok(Err(error)) => error.as_database_error().is_some(),
            Err(_) => false,
        };
        if !matches!(&answered, Ok(answer) if answer.as_ref().err().is_none_or(is_quick)) {
            trust.lose();
        }
        if !is_whole {
            one.connection.close_on_drop();
        } else if is_raise && matches!(answered, Ok(Ok(_))) {
            // One that has failed goes back to the pool, which asks it whether it is there at all.
            at_hand.keep(one);
        }
        let rows = answered
            .unwrap_or_else(|_| Err(sqlx::Error::Protocol("the server took too long".into())))?;
        let answer: Option<&PgRow> = rows.last();
        answer.ok_or(sqlx::Error::RowNotFound)?.try_get(0)
    }
}

/// Quoted so that it means itself whatever the server's settings are.
fn literal(text: &str) -> String {
    format!("E'{}'", text.replace('\\', r"\\").replace('\'', r"\'"))
}

/// Whether another connection may do better.
fn is_about_the_connection(error: &sqlx::Error) -> bool {
    match error {
        sqlx::Error::Io(_) | sqlx::Error::PoolTimedOut | sqlx::Error::WorkerCrashed => true,
        // Shut down, crashed, starting; too many connections; a standby that was a primary, or will be.
        // A deadlock, which the order of the statements should rule out.
        sqlx::Error::Database(error) => error.code().is_some_and(|code| {
            let shut_down = matches!(&*code, "57P01" | "57P02" | "57P03");
            let standby = matches!(&*code, "0A000" | "25006" | "55000");
            shut_down || standby || matches!(&*code, "53300" | "40P01") || code.starts_with("08")
        }),
        _ => false,
    }
}

/// Whether the server refused, and not its patience ran out: with a statement, or with a lock.
fn is_quick(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(|error| error.code());
    code.is_some_and(|code| !matches!(&*code, "57014" | "55P03"))
}

fn said(error: &sqlx::Error) -> Arc<str> {
    Arc::from(error.to_string())
}

fn failed(error: &dyn std::error::Error) -> StoreError {
    StoreError(Arc::from(error.to_string()))
}

#[cfg(test)]
mod tests {
    use super::literal;

    #[test]
    fn a_literal_cannot_be_left_from_inside() {
        assert_eq!(literal(r"a'b\"), r"E'a\'b\\'");
        assert_eq!(literal("'; DROP TABLE fences; --"), r"E'\'; DROP TABLE fences; --'");
    }
}
