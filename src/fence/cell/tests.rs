//! A cell against a reference that knows everything, in a world where whatever can go wrong does:
//! answers of the store are lost, callers leave, the process dies at any point.

use std::collections::BTreeMap;
use std::ops::Range;

use super::*;
use crate::clock::Clock;

const DRAIN: Duration = Duration::from_millis(40);
/// Two routes to one resource, with upstreams of their own.
const SETTLES: [Duration; 2] = [Duration::from_millis(30), Duration::from_millis(90)];

/// What is on disk.
#[derive(Debug, Default)]
struct Disk {
    mark: Option<Mark>,
    /// Settle time, and the run that has it.
    grants: BTreeMap<Token, (Duration, u32)>,
}

/// A statement to the store.
#[derive(Clone, Debug)]
enum Statement {
    Load,
    Raise { mark: Mark, grant: Option<Duration>, spare: Option<Token> },
    Delete(Vec<Token>),
}

#[derive(Clone, Debug)]
enum Reply {
    Loaded(Option<Mark>, Vec<LeftGrant>),
    Raised { asked: Token, mark: Mark, grant: Option<Duration>, left: Option<Token> },
    Deleted,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum State {
    InFlight,
    EndsAt(Boottime),
}

#[derive(Debug)]
struct Sent {
    token: Token,
    settle: Duration,
    state: State,
}

struct World {
    random: fastrand::Rng,
    now: Boottime,
    run: u32,
    dead_since: Boottime,
    disk: Disk,
    cell: Cell,
    /// The conversation that somebody waits for: one at a time on a resource.
    awaited: Option<Result<Statement, Reply>>,
    /// Statements that nobody waits for any more, or never did; they may still be carried out.
    abandoned: Vec<Statement>,
    /// Everything that was ever forwarded.
    sent: Vec<Sent>,
    /// The highest mark that the store confirmed to anybody.
    told: Option<Token>,
    admitted: u32,
}

fn grant(settle: Duration) -> Grant {
    Grant { settle, number: 1 }
}

fn over(number: u64) -> OverGrant {
    OverGrant { rank: rank(number), number: Some(1) }
}

fn rank(number: u64) -> Rank {
    Rank::first(token(number))
}

fn token(number: u64) -> Token {
    Token::from_i64(number.cast_signed()).expect("small and above zero")
}

impl World {
    fn new(seed: u64) -> World {
        let now = Clock::new().now();
        World {
            random: fastrand::Rng::with_seed(seed),
            now,
            run: 1,
            dead_since: now,
            disk: Disk::default(),
            cell: Cell::new(now),
            awaited: None,
            abandoned: Vec::new(),
            sent: Vec::new(),
            told: None,
            admitted: 0,
        }
    }

    fn act(&mut self) {
        match self.random.u32(..200) {
            0..70 => self.ask(),
            70..95 => self.finish(),
            95..125 => self.now = self.now + Duration::from_millis(self.random.u64(..30)),
            125..175 => self.go_on(),
            175..180 => self.lose(),
            180..185 => self.late(),
            185..188 => self.raise_by_operator(),
            188..192 => self.take_over(),
            192..197 => self.close(),
            197..198 => self.stop(),
            _ => self.crash(),
        }
    }

    /// Some token near the mark, older or newer.
    fn some_token(&mut self, ahead: Range<u64>) -> Token {
        let mark = self.disk.mark.map_or(1, |mark| mark.rank.token.get());
        token((mark + self.random.u64(ahead)).saturating_sub(2).max(1))
    }

    fn ask(&mut self) {
        let token = self.some_token(0..4);
        let settle = SETTLES[self.random.usize(..SETTLES.len())];
        self.ask_for(token, settle);
    }

    fn ask_for(&mut self, token: Token, settle: Duration) -> Step {
        let terms = Terms { settle, drain: Some(DRAIN), held: true };
        let step = self.cell.admit(token, &terms, Epoch::FIRST, self.now);
        match step {
            Step::Admit => self.check_admitted(token, settle),
            Step::Load => self.say(Statement::Load),
            Step::Confirm | Step::Grant => {
                let mark = Mark { rank: Rank::first(token), confirmed: true };
                self.raise_with_grant(mark, settle);
            }
            Step::Stale(mark) => {
                assert!(mark > token && self.disk.mark.unwrap().rank.token >= mark)
            }
            Step::Drain { .. } | Step::Elsewhere | Step::Closing => {}
        }
        step
    }

    fn raise_with_grant(&mut self, mark: Mark, settle: Duration) {
        if self.awaited.is_none() {
            let spare = self.cell.take_spare(self.now).map(|over| over.rank.token);
            self.say(Statement::Raise { mark, grant: Some(settle), spare });
        }
    }

    /// The promise.
    fn check_admitted(&mut self, token: Token, settle: Duration) {
        assert!(self.told <= Some(token), "admitted {token} below {:?}", self.told);
        for older in &self.sent {
            assert!(older.token <= token, "{token} after {}", older.token);
            let is_over = matches!(older.state, State::EndsAt(end) if end <= self.now);
            assert!(older.token == token || is_over, "{token} while {older:?}");
        }
        let mark = self.disk.mark.expect("a mark before the first write");
        assert!(
            mark >= Mark { rank: Rank::first(token), confirmed: true },
            "{token} is not durable: {mark:?}"
        );
        let (on_disk, run) = self.disk.grants[&token];
        assert!(on_disk >= settle && run == self.run, "a crash would look over too early");
        self.sent.push(Sent { token, settle, state: State::InFlight });
        self.admitted += 1;
    }

    fn say(&mut self, statement: Statement) {
        // Others wait for their turn, and ask the cell again then.
        if self.awaited.is_none() {
            self.awaited = Some(Ok(statement));
        }
    }

    fn execute(&mut self, statement: Statement) -> Reply {
        match statement {
            Statement::Load => {
                let left = self.disk.grants.iter().filter(|(_, (_, run))| *run < self.run);
                let left = left.map(|(token, (settle, _))| LeftGrant {
                    rank: Rank::first(*token),
                    settle: *settle,
                });
                Reply::Loaded(self.disk.mark, left.collect())
            }
            Statement::Raise { mark, grant, spare } => {
                self.disk.mark = self.disk.mark.max(Some(mark));
                let stands = self.disk.mark.unwrap();
                let mut left = spare;
                if let Some(settle) = grant
                    && stands.rank == mark.rank
                {
                    let on_disk = self.disk.grants.entry(mark.rank.token).or_default();
                    *on_disk = (on_disk.0.max(settle), self.run);
                    // The store may rewrite its record, and if it is there no more it does not.
                    if self.random.bool() {
                        left = spare.filter(|spare| self.disk.grants.remove(spare).is_none());
                    }
                }
                Reply::Raised { asked: mark.rank.token, mark: stands, grant, left }
            }
            Statement::Delete(tokens) => {
                self.disk.grants.retain(|token, _| !tokens.contains(token));
                Reply::Deleted
            }
        }
    }

    /// The awaited conversation makes a step: to the disk, or back.
    fn go_on(&mut self) {
        match self.awaited.take() {
            Some(Ok(statement)) => self.awaited = Some(Err(self.execute(statement))),
            Some(Err(reply)) => self.hear(reply),
            None => {}
        }
    }

    fn hear(&mut self, reply: Reply) {
        match reply {
            Reply::Loaded(mark, left) => {
                let mark = mark.map(|mark| (mark, self.now));
                self.cell.loaded(mark, &left, self.dead_since);
            }
            Reply::Raised { asked, mark, grant, left } => {
                self.abandoned.extend(left.map(|spare| Statement::Delete(vec![spare])));
                self.cell.raised(mark, false, self.now);
                self.told = self.told.max(Some(mark.rank.token));
                if let Some(settle) = grant
                    && mark.rank.token == asked
                {
                    self.cell.granted(Rank::first(asked), Grant { settle, number: 1 });
                }
                self.take_over();
            }
            Reply::Deleted => self.cell = Cell::new(self.now),
        }
    }

    /// Whoever waits leaves, or is told of a failure: the statement may be carried out or not, at
    /// once or later. Only of a deletion that closes a cell the end is waited for.
    fn lose(&mut self) {
        match self.awaited.take() {
            Some(Ok(Statement::Delete(tokens))) => {
                if self.random.bool() {
                    self.execute(Statement::Delete(tokens));
                }
                self.cell.reopen();
            }
            Some(Err(Reply::Deleted)) => self.cell.reopen(),
            Some(Ok(statement)) => {
                if let Statement::Raise { spare: Some(spare), .. } = statement {
                    self.abandoned.push(Statement::Delete(vec![spare]));
                }
                self.abandoned.push(statement);
            }
            Some(Err(Reply::Raised { left: Some(spare), .. })) => {
                self.abandoned.push(Statement::Delete(vec![spare]));
            }
            Some(Err(_)) | None => {}
        }
    }

    fn late(&mut self) {
        if !self.abandoned.is_empty() {
            let number = self.random.usize(..self.abandoned.len());
            let statement = self.abandoned.swap_remove(number);
            if self.random.f64() < 0.8 {
                self.execute(statement);
            }
        }
    }

    fn raise_by_operator(&mut self) {
        let token = self.some_token(2..4);
        if self.cell.touch(self.now) && self.cell.is_loaded() {
            let mark = Mark { rank: Rank::first(token), confirmed: false };
            self.say(Statement::Raise { mark, grant: None, spare: None });
        }
    }

    fn finish(&mut self) {
        let now = self.now;
        let in_flight = self.sent.iter_mut().filter(|sent| sent.state == State::InFlight);
        let in_flight: Vec<&mut Sent> = in_flight.collect();
        if in_flight.is_empty() {
            return;
        }
        let number = self.random.usize(..in_flight.len());
        let sent = in_flight.into_iter().nth(number).unwrap();
        let (outcome, end) = if self.random.bool() {
            (Outcome::Over, now)
        } else {
            (Outcome::InDoubt(now + sent.settle), now + sent.settle)
        };
        sent.state = State::EndsAt(end);
        let token = sent.token;
        self.cell.finish(Rank::first(token), outcome);
    }

    fn take_over(&mut self) {
        let mut over = self.cell.take_over(self.now);
        if self.random.f64() < 0.3 {
            over.extend(self.cell.take_spare(self.now));
        }
        let over: Vec<Token> = over.iter().map(|over| over.rank.token).collect();
        if !over.is_empty() {
            self.abandoned.push(Statement::Delete(over));
        }
    }

    /// Only while nobody has the cell in hand.
    fn close(&mut self) {
        let in_flight = self.sent.iter().any(|sent| sent.state == State::InFlight);
        if self.awaited.is_none()
            && !in_flight
            && let Some(tokens) = self.cell.close(self.now)
        {
            self.awaited =
                Some(Ok(Statement::Delete(tokens.iter().map(|over| over.rank.token).collect())));
        }
    }

    /// A clean shutdown, at the end of its grace, and the next start.
    fn stop(&mut self) {
        self.cell.cut_all();
        while self.sent.iter().any(|sent| sent.state == State::InFlight) {
            self.finish();
        }
        let keep: Vec<Token> = self.cell.unsettled(self.now).map(|rank| rank.token).collect();
        let run = self.run;
        self.disk.grants.retain(|token, (_, of)| *of != run || keep.contains(token));
        self.crash();
    }

    /// What was in flight may take effect for its settle time; what was said to the store may have
    /// reached it or not.
    fn crash(&mut self) {
        let now = self.now;
        for sent in self.sent.iter_mut().filter(|sent| sent.state == State::InFlight) {
            sent.state = State::EndsAt(now + sent.settle);
        }
        if let Some(Ok(statement)) = self.awaited.take() {
            self.abandoned.push(statement);
        }
        for statement in std::mem::take(&mut self.abandoned) {
            if self.random.bool() {
                self.execute(statement);
            }
        }
        self.run += 1;
        self.now = self.now + Duration::from_millis(self.random.u64(..20));
        self.dead_since = self.now;
        self.cell = Cell::new(self.now);
    }

    /// With no more mishaps, a new token gets in after the drain and the settle times.
    fn check_alive(&mut self) {
        let newest = self.disk.mark.map_or(1, |mark| mark.rank.token.get() + 1);
        for _ in 0..40 {
            if self.ask_for(token(newest), SETTLES[1]) == Step::Admit {
                return;
            }
            self.go_on();
            self.go_on();
            for _ in 0..self.sent.len() {
                self.finish();
            }
            self.now = self.now + Duration::from_millis(10);
        }
        panic!("{newest} was never admitted: {:?}", self.cell);
    }
}

#[test]
fn whatever_goes_wrong_no_write_meets_an_older_one_or_a_higher_mark() {
    let seed = std::env::var("SEED").ok().and_then(|seed| seed.parse().ok());
    let seed: u64 = seed.unwrap_or_else(|| fastrand::u64(..1 << 48));
    let mut admitted = 0;
    for seed in seed..seed + 2000 {
        println!("SEED={seed}");
        let mut world = World::new(seed);
        for _ in 0..300 {
            world.act();
        }
        world.check_alive();
        admitted += world.admitted;
    }
    assert!(admitted > 10_000, "too little happened: {admitted}");
}

fn open(mark: u64, now: Boottime) -> Cell {
    let mut cell = Cell::new(now);
    cell.loaded(Some((Mark { rank: rank(mark), confirmed: true }, now)), &[], now);
    cell
}

#[test]
fn a_cell_that_is_being_given_up_admits_nothing_and_can_be_reopened() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(terms.settle));
    assert_eq!(cell.close(now).unwrap().as_slice(), [over(5)]);
    assert!(!cell.touch(now));
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Closing);
    assert_eq!(cell.close(now), None);
    cell.reopen();
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Load);
}

#[test]
fn an_operators_mark_refuses_older_tokens_and_admits_nobody_by_itself() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(terms.settle));
    cell.raised(Mark { rank: rank(9), confirmed: false }, false, now);
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Stale(token(9)));
    assert_eq!(cell.admit(token(9), &terms, Epoch::FIRST, now), Step::Confirm);
}

#[test]
fn a_longer_settle_time_is_recorded_before_a_write_relies_on_it() {
    let now = Clock::new().now();
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(SETTLES[0]));
    let longer = Terms { settle: SETTLES[1], drain: Some(DRAIN), held: true };
    assert_eq!(cell.admit(token(5), &longer, Epoch::FIRST, now), Step::Grant);
}

#[test]
fn who_may_not_cut_leaves_older_writes_alone_for_ever() {
    let now = Clock::new().now();
    let observer = Terms { settle: SETTLES[0], drain: None, held: true };
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(observer.settle));
    assert_eq!(cell.admit(token(5), &observer, Epoch::FIRST, now), Step::Admit);
    cell.raised(Mark { rank: rank(6), confirmed: true }, false, now);
    cell.granted(rank(6), grant(observer.settle));

    let much_later = now + Duration::from_secs(3600);
    let step = cell.admit(token(6), &observer, Epoch::FIRST, much_later);

    assert_eq!(step, Step::Drain { again_at: None, cut: false });
    assert!(!cell.is_cut(rank(5)));
}

#[test]
fn a_write_waits_until_the_store_says_that_nobody_else_has_older_grants() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let mut cell = open(5, now);
    cell.raised(Mark { rank: rank(6), confirmed: true }, true, now);
    cell.granted(rank(6), grant(terms.settle));
    assert_eq!(cell.admit(token(6), &terms, Epoch::FIRST, now), Step::Elsewhere);

    cell.nobody_elsewhere(rank(5));
    assert!(cell.minds_elsewhere(rank(6)), "that was asked about another mark");
    assert_eq!(cell.admit(token(6), &terms, Epoch::FIRST, now), Step::Elsewhere);

    cell.nobody_elsewhere(rank(6));
    assert_eq!(cell.admit(token(6), &terms, Epoch::FIRST, now), Step::Admit);
}

#[test]
fn what_is_under_way_is_cut_in_time_to_make_way_for_another_instance() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(terms.settle));
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Admit);
    assert_eq!(cell.make_way(terms.drain, now), None, "nothing is below the mark yet");
    cell.raised(Mark { rank: rank(6), confirmed: true }, true, now);

    let waits = Step::Drain { again_at: Some(now + DRAIN), cut: false };
    assert_eq!(cell.make_way(terms.drain, now), Some(waits));
    let cuts = Step::Drain { again_at: None, cut: true };
    assert_eq!(cell.make_way(terms.drain, now + DRAIN), Some(cuts));
    assert!(cell.is_cut(rank(5)));
    assert!(cell.is_draining(), "whoever waits elsewhere waits for its end");
    let settles_at = now + DRAIN + terms.settle;
    cell.finish(rank(5), Outcome::InDoubt(settles_at));
    let in_doubt = Step::Drain { again_at: Some(settles_at), cut: false };
    assert_eq!(cell.make_way(terms.drain, now + DRAIN), Some(in_doubt));
    assert_eq!(cell.make_way(terms.drain, settles_at), None);
    assert!(cell.take_over(settles_at).is_empty());
    assert_eq!(cell.take_spare(settles_at), Some(over(5)));
}

#[test]
fn tokens_of_an_earlier_epoch_go_on_until_one_of_the_next_is_there() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let next = Epoch::FIRST.next();
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(terms.settle));
    assert_eq!(cell.admit(token(3), &terms, Epoch::FIRST, now), Step::Stale(token(5)));
    assert_eq!(cell.admit(token(3), &terms, next, now), Step::Confirm, "numbers start over");
    assert_eq!(cell.admit(token(5), &terms, next, now), Step::Admit);
    let elsewhere = Terms { held: false, ..terms };
    assert_eq!(cell.admit(token(3), &elsewhere, next, now), Step::Stale(token(5)));

    let third = Rank { epoch: next, token: token(3) };
    cell.raised(Mark { rank: third, confirmed: true }, false, now);
    cell.granted(third, grant(terms.settle));
    let drains = Step::Drain { again_at: Some(now + DRAIN), cut: false };
    assert_eq!(cell.admit(token(3), &terms, next, now), drains, "the older one is under way");
    cell.finish(rank(5), Outcome::Over);
    assert!(cell.take_over(now).is_empty());
    assert_eq!(cell.take_spare(now), Some(over(5)));
    assert_eq!(cell.admit(token(3), &terms, next, now), Step::Admit);
    assert_eq!(cell.admit(token(5), &terms, next, now), Step::Confirm, "no grant, no mark");
}

#[test]
fn a_cell_that_ended_with_its_instance_cuts_all_and_admits_nothing() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(terms.settle));
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Admit);
    cell.end();
    assert!(cell.is_cut(rank(5)));
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Closing);
}

#[test]
fn a_mark_is_as_old_as_its_raise_wherever_that_was_heard_of() {
    let start = Clock::new().now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mark = |number| Mark { rank: rank(number), confirmed: true };
    let mut cell = Cell::new(at(100));
    cell.loaded(Some((mark(5), at(40))), &[], at(100));
    assert_eq!(cell.mark_age(at(100)), Duration::from_secs(60));
    cell.raised(mark(6), false, at(110));
    cell.raised(mark(6), false, at(120));
    cell.raised(mark(5), false, at(120));
    assert_eq!(cell.mark_age(at(130)), Duration::from_secs(20));
}

#[test]
fn a_drain_goes_on_from_the_newer_token_until_older_writes_are_over() {
    let start = Clock::new().now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mark = |number| Mark { rank: rank(number), confirmed: true };
    let terms = Terms { settle: Duration::from_secs(9), drain: None, held: true };
    let mut cell = open(5, at(0));
    cell.granted(rank(5), Grant { settle: terms.settle, number: 1 });
    assert_eq!(cell.admit(rank(5).token, &terms, Epoch::FIRST, at(1)), Step::Admit);
    assert_eq!(cell.draining_since(at(2)), None, "nobody newer has come");
    cell.raised(mark(6), false, at(3));
    assert_eq!(cell.draining_since(at(4)), Some(at(3)));
    cell.finish(rank(5), Outcome::InDoubt(at(20)));
    assert_eq!(cell.draining_since(at(19)), Some(at(3)), "it may still take effect");
    assert_eq!(cell.draining_since(at(20)), None);
}

#[test]
fn the_last_grant_that_is_over_is_kept_as_the_spare_and_the_others_are_given_back() {
    let start = Clock::new().now();
    let at = |seconds| start + Duration::from_secs(seconds);
    let mark = |number| Mark { rank: rank(number), confirmed: true };
    let mut cell = open(5, at(0));
    for number in 5..8 {
        cell.raised(mark(number), false, at(0));
        cell.granted(rank(number), grant(SETTLES[0]));
    }
    assert_eq!(cell.take_over(at(1)).as_slice(), [over(5)]);
    assert_eq!(cell.take_spare(at(0)), None, "it has been one for less");
    cell.raised(mark(8), false, at(2));
    assert_eq!(cell.take_over(at(2)).as_slice(), [over(6)]);
    assert_eq!(cell.take_spare(at(1)), None);
    assert_eq!(cell.take_spare(at(2)), Some(over(7)));
    assert_eq!(cell.take_spare(at(2)), None);
}

#[test]
fn a_grant_with_writes_under_way_or_in_doubt_is_no_spare() {
    let now = Clock::new().now();
    let terms = Terms { settle: SETTLES[0], drain: Some(DRAIN), held: true };
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(terms.settle));
    assert_eq!(cell.admit(token(5), &terms, Epoch::FIRST, now), Step::Admit);
    assert!(cell.take_over(now).is_empty());
    assert_eq!(cell.take_spare(now), None, "writes of it may still come");
    cell.raised(Mark { rank: rank(6), confirmed: true }, false, now);
    assert!(cell.take_over(now).is_empty());
    assert_eq!(cell.take_spare(now), None, "one is under way");
    cell.finish(rank(5), Outcome::InDoubt(now + terms.settle));
    assert!(cell.take_over(now).is_empty());
    assert_eq!(cell.take_spare(now), None, "it is in doubt");
    let settled = now + terms.settle;
    assert!(cell.take_over(settled).is_empty());
    assert_eq!(cell.take_spare(settled), Some(over(5)));
}

#[test]
fn a_cell_is_given_up_with_its_spare() {
    let now = Clock::new().now();
    let mut cell = open(5, now);
    cell.granted(rank(5), grant(SETTLES[0]));
    cell.raised(Mark { rank: rank(6), confirmed: true }, false, now);
    cell.granted(rank(6), grant(SETTLES[0]));
    assert!(cell.take_over(now).is_empty());
    assert_eq!(cell.close(now).unwrap().as_slice(), [over(6), over(5)]);
    assert_eq!(cell.take_spare(now), None);
}
