//! How the database is reached: a URL that anybody may see, and a password apart from it.

use std::fmt;
use std::str::FromStr;

use reqwest::Url;
use sqlx::postgres::PgConnectOptions;

use crate::coordinator::CoordinatorError;

/// Other parameters would be passed over in silence, or would not pass a pooler.
const PARAMETERS: [&str; 5] = ["host", "sslcert", "sslkey", "sslmode", "sslrootcert"];

/// Where the database is, who asks, and with which password.
#[derive(Clone)]
pub struct PostgresAccess {
    url: String,
    password: Option<String>,
}

/// What a coordinator on PostgreSQL has to be told.
#[derive(Clone, Debug)]
pub struct PostgresSettings {
    /// Where the leases are. May be a pooler that gives every transaction another session.
    pub access: PostgresAccess,
    /// Where to listen for leases that come free: the server itself, never such a pooler, whose
    /// sessions would all get the news, in the midst of other answers. `None`: those who wait
    /// look every now and then.
    pub listen: Option<PostgresAccess>,
}

/// A text that is not the URL of a PostgreSQL database. Shows nothing of it: it may hold a password.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct InvalidPostgresUrl(String);

impl FromStr for PostgresAccess {
    type Err = InvalidPostgresUrl;

    /// `postgres://USER@HOST:PORT/DATABASE`, and after a `?` any of `host` (a directory with a
    /// socket), `sslmode`, `sslrootcert`, `sslcert` and `sslkey`.
    fn from_str(url: &str) -> Result<PostgresAccess, InvalidPostgresUrl> {
        let invalid = |why: &str| InvalidPostgresUrl(why.to_owned());
        let parsed = Url::parse(url).map_err(|_| invalid("is no URL"))?;
        if !matches!(parsed.scheme(), "postgres" | "postgresql") {
            return Err(invalid("does not start with postgres://"));
        }
        if parsed.password().is_some() || parsed.query_pairs().any(|(key, _)| key == "password") {
            return Err(invalid("must hold no password; put it into a file and name that"));
        }
        if parsed.path().trim_start_matches('/').is_empty() {
            return Err(invalid("names no database"));
        }
        let unknown = parsed.query_pairs().find(|(key, _)| !PARAMETERS.contains(&&**key));
        if let Some((key, _)) = unknown {
            let known = PARAMETERS.join(", ");
            return Err(invalid(&format!("has the parameter {key:?}; known are {known}")));
        }
        // What it shows of the URL is a value of a parameter, none of which is a secret.
        PgConnectOptions::from_str(url).map_err(|error| InvalidPostgresUrl(error.to_string()))?;
        Ok(PostgresAccess { url: url.to_owned(), password: None })
    }
}

impl PostgresAccess {
    /// The same with a password.
    #[must_use]
    pub fn with_password(self, password: String) -> PostgresAccess {
        PostgresAccess { password: Some(password), ..self }
    }

    pub(super) fn options(&self) -> Result<PgConnectOptions, CoordinatorError> {
        // It was read before, but it may name files.
        let options = PgConnectOptions::from_str(&self.url)
            .map_err(|error| CoordinatorError::Unavailable(error.to_string()))?
            .application_name("fencegate")
            // A pooler would have to be told to let it pass.
            .extra_float_digits(None);
        Ok(match &self.password {
            Some(password) => options.password(password),
            None => options,
        })
    }
}

impl fmt::Debug for PostgresAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let password = self.password.as_ref().map(|_| "***");
        f.debug_struct("PostgresAccess")
            .field("url", &self.url)
            .field("password", &password)
            .finish()
    }
}

/// As it may be shown.
impl fmt::Display for PostgresAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.url)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(url: &str) -> String {
        url.parse::<PostgresAccess>().unwrap_err().to_string()
    }

    #[test]
    fn a_url_has_a_database_and_no_password() {
        for url in [
            "postgres://fencegate@db:5432/fencegate",
            "postgresql://db/fencegate?sslmode=verify-full&sslrootcert=/etc/ca.pem",
            "postgres:///fencegate?host=/run/postgresql",
        ] {
            assert!(url.parse::<PostgresAccess>().is_ok(), "{url}");
        }
        assert!(why("postgres://me:secret@db/x").contains("no password"));
        assert!(why("postgres://db/x?password=secret").contains("no password"));
        assert!(why("postgres://db").contains("no database"));
        assert!(why("postgres://db/x?options=-c").contains("options"));
        assert!(why("postgres://db/x?sslmode=some").contains("some"));
        assert!(why("mysql://db/x").contains("postgres://"));
    }

    #[test]
    fn a_password_is_never_shown() {
        let access: PostgresAccess = "postgres://db/x".parse().unwrap();
        let shown = format!("{0:?} {0}", access.with_password("secret".to_owned()));
        assert!(!shown.contains("secret"), "{shown}");
    }
}
