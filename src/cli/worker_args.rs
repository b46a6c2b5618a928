//! What `fencegate run` and `fencegate lease` take alike.

use std::time::Duration;

use crate::fence::Owner;
use crate::worker::LeaseClient;

/// No time to live and no wait is sensibly longer.
const LONGEST: Duration = Duration::from_secs(30 * 24 * 3600);

#[derive(Debug, clap::Args)]
pub(super) struct LeaseApi {
    /// Address of the lease API [default: FENCEGATE_LEASES, else http://127.0.0.1:8081]
    #[arg(long = "leases", value_name = "URL")]
    url: Option<String>,
}

impl LeaseApi {
    /// A client, or what is wrong with the address.
    pub(super) fn client(&self) -> Result<LeaseClient, String> {
        let from_environment = || match std::env::var("FENCEGATE_LEASES") {
            Ok(url) => Ok(url),
            Err(std::env::VarError::NotPresent) => Ok("http://127.0.0.1:8081".to_owned()),
            Err(std::env::VarError::NotUnicode(_)) => Err("FENCEGATE_LEASES is not UTF-8"),
        };
        let url = self.url.clone().map_or_else(from_environment, Ok)?;
        LeaseClient::new(&url).map_err(|error| error.to_string())
    }
}

/// `500ms`, `10s`, `5m`, `1h`.
pub(super) fn duration(text: &str) -> Result<Duration, String> {
    let digits = text.len() - text.trim_start_matches(|c: char| c.is_ascii_digit()).len();
    let (number, unit) = text.split_at(digits);
    let unit_millis = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err("a duration is a whole number and ms, s, m or h, such as 10s".to_owned()),
    };
    let millis = number.parse::<u64>().ok().and_then(|number| number.checked_mul(unit_millis));
    millis
        .map(Duration::from_millis)
        .filter(|duration| *duration <= LONGEST)
        .ok_or_else(|| "a duration is a whole number and a unit, at most 720h".to_owned())
}

/// A name that no other process has: two runs of one name would end each other's leases.
pub(super) fn unique_owner() -> Owner {
    let host = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    let (process, random) = (std::process::id(), uuid::Uuid::new_v4().simple());
    Owner::new(&format!("{}:{process}:{random}", host.trim_end())).unwrap_or_else(|_| {
        Owner::new(&format!("{process}:{random}")).expect("digits name an owner")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_have_a_number_and_a_unit() {
        assert_eq!(duration("500ms"), Ok(Duration::from_millis(500)));
        assert_eq!(duration("10s"), Ok(Duration::from_secs(10)));
        assert_eq!(duration("1h"), Ok(Duration::from_secs(3600)));
        for text in ["", "10", "s", "-1s", "1.5s", "1 s", "1d", "721h", "99999999999999999999s"] {
            assert!(duration(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn no_two_owners_are_alike() {
        assert_ne!(unique_owner(), unique_owner());
    }
}
