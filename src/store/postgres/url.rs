//! The URL of a server, read but never shown: it may hold a password.

use std::fmt;

use sqlx::postgres::PgConnectOptions;

/// Parameters that a URL may have; anything else is a mistake.
const PARAMETERS: [&str; 10] = [
    "sslmode",
    "sslrootcert",
    "sslcert",
    "sslkey",
    "application_name",
    "options",
    "host",
    "port",
    "dbname",
    "user",
];

/// Where a server is and how to log on to it.
#[derive(Clone)]
pub struct PostgresUrl(pub(super) Box<PgConnectOptions>);

impl PostgresUrl {
    /// Reads `postgres://user@host:port/database?sslmode=…`.
    ///
    /// # Errors
    /// Says what is wrong, without showing any of it.
    pub fn parse(text: &str) -> Result<PostgresUrl, String> {
        for (name, _) in parameters(text) {
            if name == "password" {
                return Err("must not have a password among its parameters; put it into a file \
                            and name that in store.password_file"
                    .to_owned());
            }
            if !PARAMETERS.contains(&name) {
                let known = PARAMETERS.join(", ");
                return Err(format!("has an unknown parameter; it takes {known}"));
            }
        }
        let options: PgConnectOptions = text.parse().map_err(
            |_| "is no URL of the form postgres://user@host:port/database?sslmode=verify-full",
        )?;
        Ok(PostgresUrl(Box::new(options)))
    }

    /// The same with this password.
    #[must_use]
    pub fn with_password(self, password: &str) -> PostgresUrl {
        PostgresUrl(Box::new(self.0.password(password)))
    }

    /// Whether a text that [`PostgresUrl::parse`] takes holds a password.
    #[must_use]
    pub fn holds_password(text: &str) -> bool {
        let after_scheme = text.split_once("://").map_or(text, |(_, rest)| rest);
        let authority = after_scheme.split(['/', '?']).next().unwrap_or_default();
        authority.rsplit_once('@').is_some_and(|(user, _)| user.contains(':'))
    }
}

fn parameters(text: &str) -> impl Iterator<Item = (&str, &str)> {
    let query = text.split_once('?').map_or("", |(_, query)| query);
    let pairs = query.split('&').filter(|pair| !pair.is_empty());
    pairs.map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

/// Where it is; no password.
impl fmt::Display for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let options = &self.0;
        let database = options.get_database().unwrap_or_else(|| options.get_username());
        match options.get_socket() {
            Some(socket) => write!(f, "{}/{database}", socket.display()),
            None => write!(f, "{}:{}/{database}", options.get_host(), options.get_port()),
        }
    }
}

/// As `Display`.
impl fmt::Debug for PostgresUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}
