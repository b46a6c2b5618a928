//! Whether two sides have one history. Pure.

use crate::coordinator::etcd::sentinel::Snapshot;
use crate::store::History;

/// What comes out of a comparison. The texts are for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// The coordinator goes on where it was.
    Same,
    /// The coordinator has a later sentinel than the store ever wrote down: the store went back.
    StoreBehind(String),
    /// The coordinator went back, or is another one.
    Changed(String),
}

/// Compares what is known with a snapshot that was asked for after all of that was known, the
/// highest revision `seen` included.
pub(super) fn judge(history: &History, seen: i64, snapshot: &Snapshot) -> Verdict {
    let Snapshot { cluster_id, revision, sentinel } = snapshot;
    if *cluster_id != history.cluster_id {
        return Verdict::Changed(format!(
            "it is the cluster {cluster_id:x}, and was {:x}",
            history.cluster_id
        ));
    }
    let reached = history.revision.max(history.sentinel).max(seen);
    if *revision < reached {
        return Verdict::Changed(format!("its revision is {revision}, and was {reached}"));
    }
    match sentinel {
        None if history.sentinel == 0 => Verdict::Same,
        None => Verdict::Changed("the key that marks its history is gone".to_owned()),
        Some((nonce, at)) if *at == history.sentinel && *nonce == history.nonce => Verdict::Same,
        Some((nonce, at)) if *at > history.sentinel && history.next.as_ref() == Some(nonce) => {
            Verdict::Same
        }
        Some((nonce, at)) if *at > history.sentinel && *nonce != history.nonce => {
            Verdict::StoreBehind(format!(
                "its history was marked at revision {at}, and the store knows of {}",
                history.sentinel
            ))
        }
        Some((_, at)) => Verdict::Changed(format!(
            "the mark of its history is of revision {at}, and was of {}",
            history.sentinel
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fence::Epoch;

    fn known() -> History {
        History {
            epoch: Epoch::FIRST,
            id: "id".to_owned(),
            cluster_id: 7,
            revision: 100,
            nonce: "n".to_owned(),
            sentinel: 90,
            next: Some("next".to_owned()),
        }
    }

    fn found(nonce: &str, at: i64, revision: i64) -> Snapshot {
        Snapshot { cluster_id: 7, revision, sentinel: Some((nonce.to_owned(), at)) }
    }

    #[test]
    fn a_history_that_goes_on_is_the_same() {
        assert_eq!(judge(&known(), 0, &found("n", 90, 100)), Verdict::Same);
        assert_eq!(judge(&known(), 120, &found("n", 90, 120)), Verdict::Same);
        assert_eq!(judge(&known(), 0, &found("next", 101, 101)), Verdict::Same);
    }

    #[test]
    fn a_history_that_went_back_or_is_another_one_has_changed() {
        let absent = Snapshot { sentinel: None, ..found("n", 90, 100) };
        let other = Snapshot { cluster_id: 8, ..found("n", 90, 100) };
        let cases = [
            (0, other),
            (0, found("n", 90, 99)),
            (120, found("n", 90, 119)),
            (0, absent),
            (0, found("older", 80, 1000)),
            (0, found("n", 95, 100)),
            (0, found("next", 80, 100)),
        ];
        for (seen, snapshot) in cases {
            let verdict = judge(&known(), seen, &snapshot);
            assert!(matches!(verdict, Verdict::Changed(_)), "{snapshot:?}: {verdict:?}");
        }
    }

    #[test]
    fn a_sentinel_that_the_store_never_wrote_down_shows_that_the_store_went_back() {
        let verdict = judge(&known(), 0, &found("later", 110, 200));
        assert!(matches!(verdict, Verdict::StoreBehind(_)), "{verdict:?}");
    }

    #[test]
    fn a_sentinel_that_was_not_written_yet_is_not_missed() {
        let fresh = History { sentinel: 0, nonce: String::new(), ..known() };
        let absent = Snapshot { sentinel: None, ..found("n", 90, 100) };
        assert_eq!(judge(&fresh, 0, &absent), Verdict::Same);
    }
}
