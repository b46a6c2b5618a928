//! What this instance saw of the others, by its own clock: who stands still, and who is gone since when.
//!
//! Invariant: a moment that is kept here is never earlier than what it stands for, since it is taken after the
//! answer that told of it. Deliberately absent: the store, and its clock.

use std::collections::HashMap;
use std::time::Duration;

use crate::clock::Boottime;
use crate::store::InstanceId;

/// Clocks of two machines do not run at exactly the same rate.
const MARGIN: Duration = Duration::from_millis(500);

/// What the store says of another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Other {
    pub(super) id: InstanceId,
    pub(super) renewals: i64,
    pub(super) ttl: Duration,
    pub(super) fenced: bool,
}

/// What is to be done about another instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// It stood still for longer than its lease: fence it, if it still has this count.
    Fence(InstanceId, i64),
    /// It has been fenced for this long: grants with no longer settle time can go.
    Bury(InstanceId, Duration),
}

/// See the module.
#[derive(Debug, Default)]
pub(super) struct Others(HashMap<InstanceId, Seen>);

#[derive(Debug)]
struct Seen {
    last: Other,
    /// When it was first seen like this.
    since: Boottime,
}

impl Others {
    /// Takes in an answer that was received by `now`, and says what is due. Who is not in it is gone altogether.
    pub(super) fn saw(&mut self, others: &[Other], now: Boottime) -> Vec<Due> {
        self.0.retain(|id, _| others.iter().any(|other| other.id == *id));
        let mut due = Vec::new();
        for other in others {
            let seen = self.0.entry(other.id).or_insert(Seen { last: *other, since: now });
            let is_same = if other.fenced {
                seen.last.fenced
            } else {
                !seen.last.fenced && seen.last.renewals == other.renewals
            };
            if !is_same {
                *seen = Seen { last: *other, since: now };
            }
            let since = now.since(seen.since);
            if other.fenced {
                due.push(Due::Bury(other.id, since.saturating_sub(MARGIN)));
            } else if since > other.ttl + MARGIN {
                due.push(Due::Fence(other.id, other.renewals));
            }
        }
        due
    }

    /// Since when an instance was seen fenced.
    pub(super) fn fenced_since(&self, id: InstanceId) -> Option<Boottime> {
        self.0.get(&id).filter(|seen| seen.last.fenced).map(|seen| seen.since)
    }

    /// Forgets all: what another server says is another story.
    pub(super) fn forget(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Clock;

    const TTL: Duration = Duration::from_secs(10);

    fn other(renewals: i64, fenced: bool) -> Other {
        Other { id: InstanceId::from_i64(7), renewals, ttl: TTL, fenced }
    }

    #[test]
    fn whoever_renews_is_left_alone() {
        let (mut others, begin) = (Others::default(), Clock::new().now());
        for second in 0..60 {
            let now = begin + Duration::from_secs(second);
            let renewals = i64::try_from(second / 9).unwrap();
            assert_eq!(others.saw(&[other(renewals, false)], now), []);
        }
    }

    #[test]
    fn whoever_stands_still_for_longer_than_its_lease_is_fenced_with_the_count_that_was_seen() {
        let (mut others, begin) = (Others::default(), Clock::new().now());
        assert_eq!(others.saw(&[other(3, false)], begin), []);
        assert_eq!(others.saw(&[other(3, false)], begin + TTL), []);
        assert_eq!(others.saw(&[other(3, false)], begin + TTL + MARGIN), []);
        let later = begin + TTL + MARGIN + Duration::from_millis(1);
        assert_eq!(others.saw(&[other(3, false)], later), [Due::Fence(other(3, false).id, 3)]);
        assert_eq!(others.saw(&[other(4, false)], later), [], "it renewed in time");
    }

    #[test]
    fn a_settle_time_is_counted_from_when_the_instance_was_first_seen_fenced() {
        let (mut others, begin) = (Others::default(), Clock::new().now());
        let id = other(3, true).id;
        others.saw(&[other(3, false)], begin);
        let fenced = begin + Duration::from_mins(1);
        assert_eq!(others.saw(&[other(3, true)], fenced), [Due::Bury(id, Duration::ZERO)]);
        assert_eq!(others.fenced_since(id), Some(fenced));
        let due = others.saw(&[other(3, true)], fenced + TTL);
        assert_eq!(due, [Due::Bury(id, TTL.saturating_sub(MARGIN))]);
        assert_eq!(others.saw(&[], fenced + TTL), []);
        assert_eq!(others.fenced_since(id), None);
    }
}
