//! Records of grants that are rewritten for the next token: alone, and in a batch, for which the schema has a function
//! each.

use super::*;

/// How a raise reaches the schema.
#[derive(Clone, Copy, Debug)]
enum Way {
    Alone,
    Together,
}

const WAYS: [Way; 2] = [Way::Alone, Way::Together];

impl Way {
    async fn raise(self, run: &Run, raise: Raise) -> Raised {
        let raises = match self {
            Way::Alone => vec![raise],
            Way::Together => vec![raise, Raise { grant: None, ..first_raise("beside", 1) }],
        };
        all(run, raises).await[0]
    }
}

/// In one call.
async fn all(run: &Run, raises: Vec<Raise>) -> Vec<Raised> {
    let raises = raises.into_iter().map(|raise| (run.instance, raise));
    run.store.raise_all(raises.collect()).await.unwrap()
}

/// With a grant of this number, and the grant of the token before as the spare.
fn next_raise(token: i64, number: i64, spare: i64) -> Raise {
    Raise {
        grant: Some(Grant { settle: TTL, number }),
        spare: Some(over(token - 1, spare)),
        ..first_raise("r", token)
    }
}

fn over(token: i64, number: i64) -> OverGrant {
    OverGrant { number: Some(number), ..first_over(token) }
}

fn raised(token: i64, elsewhere: bool, spent: bool) -> Raised {
    let mark = Mark { rank: first_raise("r", token).rank, confirmed: true };
    Raised { mark, elsewhere, spent }
}

/// Token, number, settle time in seconds, whether it is revoked and how long its writes may finish.
fn kept(run: &Run) -> String {
    run.server.sql(&format!(
        "SELECT string_agg(concat_ws(' ', token, number, settle_ms / 1000,
             CASE WHEN revoked THEN 'revoked' END, drain_ms), ', ' ORDER BY token, number)
         FROM grants WHERE resource = 'r' AND instance = {}",
        run.instance
    ))
}

#[tokio::test]
async fn a_spares_record_becomes_the_next_grants_and_no_index_is_told() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 1)).await;
        for token in 2..100 {
            let newer = way.raise(&run, next_raise(token, token, token - 1)).await;
            assert_eq!(newer, raised(token, false, true), "{way:?}");
        }
        assert_eq!(kept(&run), "99 99 10");
        until("the server has counted", async || {
            let counted = "SELECT n_tup_upd, n_tup_hot_upd FROM pg_stat_user_tables
                           WHERE relname = 'grants'";
            run.server.sql(counted) == "98|98"
        })
        .await;
    }
}

#[tokio::test]
async fn a_spare_stays_where_the_mark_is_higher_or_no_grant_is_asked_for() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 5)).await;
        let unasked = Raise { grant: None, ..next_raise(9, 2, 1) };
        assert_eq!(way.raise(&run, unasked).await, raised(9, false, false), "{way:?}");
        assert_eq!(way.raise(&run, next_raise(8, 2, 1)).await, raised(9, false, false));
        assert_eq!(kept(&run), "5 1 10");
    }
}

#[tokio::test]
async fn where_the_spare_is_gone_the_grant_is_recorded_all_the_same() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 5)).await;
        run.fences
            .give_back(run.instance, vec![(Resource::new("r").unwrap(), over(5, 1))])
            .await
            .unwrap();
        let newer = way.raise(&run, next_raise(6, 2, 1)).await;
        assert_eq!(newer, raised(6, false, false), "{way:?}");
        assert_eq!(kept(&run), "6 2 10");
    }
}

/// The answer of the first call was lost.
#[tokio::test]
async fn a_raise_with_a_spare_may_be_repeated() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 5)).await;
        way.raise(&run, next_raise(6, 2, 1)).await;
        assert_eq!(way.raise(&run, next_raise(6, 2, 1)).await, raised(6, false, false), "{way:?}");
        assert_eq!(kept(&run), "6 2 10");
        assert_eq!(way.raise(&run, next_raise(6, 3, 1)).await, raised(6, false, false));
        assert_eq!(kept(&run), "6 3 10");
    }
}

/// There is one record for a token: the spare is given back.
#[tokio::test]
async fn a_record_of_the_same_token_goes_before_the_spare() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 5)).await;
        let second = Raise { spare: None, ..next_raise(6, 2, 1) };
        way.raise(&run, second).await;
        let longer =
            Raise { grant: Some(Grant { settle: 2 * TTL, number: 3 }), ..next_raise(6, 3, 1) };
        assert_eq!(way.raise(&run, longer).await, raised(6, false, false), "{way:?}");
        assert_eq!(kept(&run), "5 1 10, 6 3 20");
        assert_eq!(way.raise(&run, next_raise(6, 4, 1)).await, raised(6, false, false));
        assert_eq!(kept(&run), "5 1 10, 6 4 20", "a shorter settle time changes nothing");
        let next = Raise { spare: Some(over(6, 4)), ..next_raise(7, 5, 4) };
        assert_eq!(way.raise(&run, next).await, raised(7, false, true));
        assert_eq!(kept(&run), "5 1 10, 7 5 10", "the settle time is the new grant's");
    }
}

/// Nobody waits for the first one any more, and it is carried out all the same.
#[tokio::test]
async fn two_raises_of_one_resource_in_one_call_leave_one_record() {
    let run = Run::first().await;
    Way::Alone.raise(&run, first_raise("r", 5)).await;
    let longer = Raise { grant: Some(Grant { settle: 2 * TTL, number: 2 }), ..next_raise(6, 2, 1) };
    let again = Raise { spare: None, ..next_raise(6, 3, 0) };
    let answers = all(&run, vec![first_raise("beside", 4), longer, again, first_raise("last", 3)]);
    let tokens: Vec<_> = answers.await.iter().map(|raised| raised.mark.rank.token.get()).collect();
    assert_eq!(tokens, [4, 6, 6, 3], "each has its own answer");
    assert_eq!(kept(&run), "6 3 20");

    let newer =
        all(&run, vec![next_raise(7, 4, 3), next_raise(9, 5, 0), next_raise(8, 6, 0)]).await;
    assert_eq!(newer, [raised(9, false, false), raised(9, false, false), raised(9, false, false)]);
    assert_eq!(kept(&run), "6 3 20, 9 5 10");
}

/// Numbers of different runs are the same.
#[tokio::test]
async fn nobodys_record_becomes_anothers() {
    for way in WAYS {
        let run = Run::first().await;
        let other = run.other();
        other.fences.raise(other.instance, first_raise("r", 5)).await.unwrap();
        way.raise(&run, first_raise("s", 5)).await;
        let newer = way.raise(&run, next_raise(6, 2, 1)).await;
        assert_eq!(newer, raised(6, true, false), "{way:?}");
        let all = "SELECT string_agg(resource || token, ' ' ORDER BY resource, token) FROM grants";
        assert_eq!(run.server.sql(all), "r5 r6 s5");
    }
}

#[tokio::test]
async fn whoever_waits_for_a_spare_is_told_that_its_record_is_the_next_grants() {
    for way in WAYS {
        let run = Run::first().await;
        let other = run.other();
        way.raise(&run, first_raise("r", 5)).await;
        let rank = first_raise("r", 6).rank;
        let drain = Some(TTL);
        let newer = Raise { drain, ..first_raise("r", 6) };
        let newer = other.fences.raise(other.instance, newer).await.unwrap();
        assert_eq!(newer, raised(6, true, false), "{way:?}");
        let mut listener = listen_to(&run.server).await;
        let is_elsewhere = async || {
            let resource = Resource::new("r").unwrap();
            other.fences.is_granted_elsewhere(other.instance, resource, rank).await.unwrap()
        };
        assert!(is_elsewhere().await);

        let spare = Some(over(5, 1));
        let newest = way.raise(&run, Raise { spare, ..next_raise(7, 2, 1) }).await;

        assert_eq!(newest, raised(7, true, true));
        assert_eq!(kept(&run), "7 2 10", "nobody waits for this one");
        assert!(!is_elsewhere().await);
        let mut said = [next_said(&mut listener).await, next_said(&mut listener).await];
        said.sort_unstable();
        assert_eq!(said[0], "given_back:r");
        assert!(said[1].starts_with(&format!("revoked:{}:", other.instance)), "{said:?}");
        assert_eq!(run.revoked(run.instance).await, []);
    }
}

#[tokio::test]
async fn a_spare_that_is_given_back_meanwhile_is_missed_and_the_grant_recorded() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 5)).await;
        let resource = Resource::new("r").unwrap();
        let spare = json!(wire::Named::over(&resource, over(5, 1)));
        let asked = json!({"instance": run.instance.as_i64(), "grants": [spare]});
        let mut slow = begin(&run, "fencegate_give_back", &asked).await;

        let newer = way.raise(&run, next_raise(6, 2, 1));
        let commit = commit_once_somebody_waits(&run, &mut slow);
        let (newer, ()) = futures_util::future::join(newer, commit).await;

        assert_eq!(newer, raised(6, false, false), "{way:?}");
        assert_eq!(kept(&run), "6 2 10");
    }
}

#[tokio::test]
async fn a_late_request_to_give_a_spare_back_finds_no_record_that_was_rewritten() {
    for way in WAYS {
        let run = Run::first().await;
        way.raise(&run, first_raise("r", 5)).await;
        let mut raises = vec![next_raise(6, 2, 1)];
        if let Way::Together = way {
            raises.push(first_raise("beside", 1));
        }
        let mut slow = begin(&run, "fencegate_raise", &raises_asked(run.instance, &raises)).await;

        let late = vec![(Resource::new("r").unwrap(), over(5, 1))];
        let given_back = run.fences.give_back(run.instance, late);
        let commit = commit_once_somebody_waits(&run, &mut slow);
        let (given_back, ()) = futures_util::future::join(given_back, commit).await;

        given_back.unwrap();
        assert_eq!(kept(&run), "6 2 10", "{way:?}");
    }
}

/// After a fail-over: what is on record already, and what is not.
#[tokio::test]
async fn what_is_asserted_and_what_a_run_leaves_is_on_record_once() {
    let run = Run::first().await;
    all(&run, vec![first_raise("r", 5)]).await;
    all(&run, vec![next_raise(6, 2, 1)]).await;
    let resource = Resource::new("r").unwrap();
    let rank = |token| first_raise("r", token).rank;
    let grant = |token, number, settle| {
        json!(wire::Named::grant(&resource, rank(token), Grant { settle, number }))
    };
    let mark = json!(wire::Named::mark(&resource, Mark { rank: rank(6), confirmed: true }));
    let asked = json!({"instance": run.instance.as_i64(), "marks": [mark],
        "grants": [grant(4, 9, TTL), grant(6, 2, 2 * TTL)]});
    for _ in 0..2 {
        let _: Value =
            run.store.call(Operation::Instance, "fencegate_assert", &asked).await.unwrap();
        assert_eq!(kept(&run), "4 9 10 revoked, 6 2 20");
    }

    let keep = json!([grant(3, 7, TTL), grant(6, 2, TTL)]);
    let asked = json!({"instance": run.instance.as_i64(), "ttl_ms": 1, "keep": keep});
    for _ in 0..2 {
        let _: Value =
            run.store.call(Operation::Instance, "fencegate_leave", &asked).await.unwrap();
        assert_eq!(kept(&run), "3 7 10, 4 9 10 revoked, 6 2 20");
    }
}
