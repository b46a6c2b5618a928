//! The store file itself, looked at while no gateway has it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use sqlx::sqlite::{SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection, FromRow};

/// A store file that nobody has open.
pub struct StoreFile(PathBuf);

impl StoreFile {
    pub fn at(path: &Path) -> StoreFile {
        StoreFile(path.to_owned())
    }

    /// The mark of each resource.
    pub fn marks(&self) -> BTreeMap<String, u64> {
        let rows: Vec<(String, i64)> = self.rows("SELECT resource, token FROM fences");
        rows.into_iter().map(|(resource, token)| (resource, token.cast_unsigned())).collect()
    }

    /// Resource and token of each grant.
    pub fn grants(&self) -> Vec<(String, u64)> {
        let rows: Vec<(String, i64)> =
            self.rows("SELECT resource, token FROM grants ORDER BY resource, token");
        rows.into_iter().map(|(resource, token)| (resource, token.cast_unsigned())).collect()
    }

    /// The rows that a statement answers.
    pub fn rows<T>(&self, sql: &str) -> Vec<T>
    where
        T: for<'r> FromRow<'r, SqliteRow> + Send + Unpin,
    {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
        let rows = runtime.expect("a runtime").block_on(async {
            let options = SqliteConnectOptions::new().filename(&self.0).create_if_missing(true);
            let mut connection = options.connect().await?;
            let rows =
                sqlx::query_as(AssertSqlSafe(sql.to_owned())).fetch_all(&mut connection).await?;
            connection.close().await?;
            Ok::<_, sqlx::Error>(rows)
        });
        rows.expect("a file that no gateway has open")
    }

    /// Runs statements.
    pub fn execute(&self, sql: &str) {
        let _: Vec<(i64,)> = self.rows(sql);
    }
}
