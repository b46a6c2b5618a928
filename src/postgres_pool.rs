//! What the pools of connections to PostgreSQL have in common, the store's and the coordinator's.

use std::time::Duration;

use futures_util::future::BoxFuture;
use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection, PgConnection};
use tokio::time::timeout;

/// Of a connection that comes back. Whoever was asked a moment ago answers at once, or is gone.
const ANSWER_WITHIN: Duration = Duration::from_secs(2);

/// Options of a pool that loses no place to a server that vanished.
///
/// sqlx asks each connection that comes back whether it is there, and waits for the answer until TCP gives up, a
/// quarter of an hour; nobody has its place meanwhile. So it is asked here before, with a limit.
pub(crate) fn options() -> PgPoolOptions {
    PgPoolOptions::new().after_release(|connection, _| is_there(connection))
}

fn is_there(connection: &mut PgConnection) -> BoxFuture<'_, Result<bool, sqlx::Error>> {
    Box::pin(async move {
        let answered = timeout(ANSWER_WITHIN, connection.ping()).await;
        let silent = || sqlx::Error::Protocol("a connection that came back is silent".into());
        // An error, as a goodbye would be waited for as well.
        answered.unwrap_or_else(|_| Err(silent())).map(|()| true)
    })
}
