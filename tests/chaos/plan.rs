//! What befalls whom and when: drawn from a seed, and from nothing else, before anything has started.

use std::collections::HashMap;
use std::fmt;
use std::time::Duration;

use super::chance::Chance;
use super::workers::TTL;

/// How many there are of each part.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shape {
    pub workers: usize,
    pub resources: usize,
    pub gateways: usize,
    /// 0: the gateway's own coordinator.
    pub etcd_members: usize,
    /// PostgreSQL with a synchronous standby; else the gateway's own SQLite.
    pub has_database: bool,
}

/// Which processes of a worker.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Whom {
    /// `fencegate run` alone.
    Run,
    /// The command's process group alone.
    Command,
    Both,
}

/// A part, by its number from 0. A worker's counts only those that have a lease when it is struck.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Victim {
    Worker(usize, Whom),
    Gateway(usize),
    Etcd(usize),
    Database,
    Link(Between),
}

/// The ends of a link.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Between {
    WorkersAndGateway(usize),
    WorkersAndLeases(usize),
    GatewayAndApi(usize),
    GatewayAndEtcd(usize, usize),
    GatewayAndDatabase(usize),
    /// What the other members send to this one.
    EtcdAndOthers(usize),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Blow {
    /// `SIGKILL`; started again later.
    Kill,
    /// `SIGSTOP`, later `SIGCONT`.
    Suspend,
    /// Bytes are held, then delivered.
    Hold,
    /// Bytes vanish.
    Swallow,
    /// Connections are reset.
    Cut,
    /// The primary is killed for good, the standby promoted, and a new standby made.
    FailOver,
    /// The same, but the old primary only stands still, and then goes on as if it were one.
    Usurp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Strike {
    /// From the begin of the fight.
    pub at: Duration,
    pub blow: Blow,
    pub victim: Victim,
    pub lasts: Duration,
}

impl fmt::Display for Strike {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Strike { at, blow, victim, lasts } = self;
        write!(f, "{:8.3} {blow:?} {victim:?} for {:.3}", at.as_secs_f64(), lasts.as_secs_f64())
    }
}

/// Longer than what the gateways are told of as the time of an instance's lease, and of a write's settling.
const LONG: Duration = Duration::from_secs(8);
/// A request that is held here takes effect later by as much, which the settle time has to allow.
pub const LONGEST_HOLD_BEFORE_API: Duration = Duration::from_millis(800);
const QUIET_START: Duration = Duration::from_secs(2);
/// After this the database is failed over, and then each time this long after the last one.
const FAIL_OVER_EVERY: Duration = Duration::from_secs(25);

/// The strikes of a fight of this length, by their times.
pub fn draw(seed: u64, length: Duration, shape: Shape) -> Vec<Strike> {
    let mut chance = Chance::new(seed);
    let mut plan = Vec::new();
    let mut busy_until: HashMap<Victim, Duration> = HashMap::new();
    let mut next_fail_over = FAIL_OVER_EVERY;
    let mut at = QUIET_START;
    while at < length {
        let is_due = shape.has_database && at >= next_fail_over;
        let mut strike = if is_due {
            next_fail_over += FAIL_OVER_EVERY;
            let blow = if chance.one_in(2) { Blow::FailOver } else { Blow::Usurp };
            Strike { at, blow, victim: Victim::Database, lasts: LONG.mul_f64(chance.fraction()) }
        } else {
            draw_one(at, shape, &mut chance)
        };
        strike.lasts = strike.lasts.min(length.saturating_sub(at));
        let who = sufferer(strike.victim);
        if is_due || busy_until.get(&who).is_none_or(|until| *until <= at) {
            busy_until.insert(who, at + strike.lasts);
            plan.push(strike);
        }
        at += Duration::from_millis(600).mul_f64(0.2 + chance.fraction());
    }
    plan
}

fn draw_one(at: Duration, shape: Shape, chance: &mut Chance) -> Strike {
    let strike = |victim, blow, lasts| Strike { at, blow, victim, lasts };
    // Mostly short, else nothing but waiting would happen.
    let up_to =
        |most: Duration, chance: &mut Chance| most.mul_f64(0.02 + 0.98 * chance.fraction().powi(2));
    // With a single gateway all stand still when it is struck, so it is not struck so often, nor for long.
    let is_alone = shape.gateways == 1;
    let longest = if is_alone { LONG / 4 } else { LONG };
    loop {
        match if is_alone && chance.one_in(2) { 0 } else { chance.below(16) } {
            0..6 => {
                let whom = [Whom::Run, Whom::Run, Whom::Command, Whom::Both][chance.below(4)];
                let victim = Victim::Worker(chance.below(shape.workers), whom);
                if chance.one_in(3) {
                    return strike(victim, Blow::Kill, Duration::ZERO);
                }
                return strike(victim, Blow::Suspend, TTL.mul_f64(0.8 + 1.5 * chance.fraction()));
            }
            6..9 => {
                let victim = Victim::Gateway(chance.below(shape.gateways));
                if chance.one_in(3) {
                    return strike(victim, Blow::Kill, up_to(Duration::from_secs(3), chance));
                }
                return strike(victim, Blow::Suspend, up_to(longest, chance));
            }
            9..13 => {
                let between = draw_link(shape, chance);
                let blow = [Blow::Hold, Blow::Swallow, Blow::Cut][chance.below(3)];
                let is_bounded = blow == Blow::Hold && matches!(between, Between::GatewayAndApi(_));
                let most = if is_bounded { LONGEST_HOLD_BEFORE_API } else { longest };
                return strike(Victim::Link(between), blow, up_to(most, chance));
            }
            13..15 if shape.etcd_members > 0 => {
                let victim = Victim::Etcd(chance.below(shape.etcd_members));
                let blow = if chance.one_in(2) { Blow::Kill } else { Blow::Suspend };
                return strike(victim, blow, up_to(LONG / 2, chance));
            }
            15 if shape.has_database => {
                return strike(Victim::Database, Blow::Suspend, up_to(LONG / 2, chance));
            }
            _ => {}
        }
    }
}

fn draw_link(shape: Shape, chance: &mut Chance) -> Between {
    let gateway = chance.below(shape.gateways);
    loop {
        match chance.below(7) {
            0 => return Between::WorkersAndGateway(gateway),
            1 => return Between::WorkersAndLeases(gateway),
            2..4 => return Between::GatewayAndApi(gateway),
            4 if shape.etcd_members > 0 => {
                return Between::GatewayAndEtcd(gateway, chance.below(shape.etcd_members));
            }
            5 if shape.has_database => return Between::GatewayAndDatabase(gateway),
            6 if shape.etcd_members > 0 => {
                return Between::EtcdAndOthers(chance.below(shape.etcd_members));
            }
            _ => {}
        }
    }
}

/// A worker is one, whichever of its processes are struck.
fn sufferer(victim: Victim) -> Victim {
    match victim {
        Victim::Worker(worker, _) => Victim::Worker(worker, Whom::Both),
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPE: Shape =
        Shape { workers: 24, resources: 10, gateways: 3, etcd_members: 3, has_database: true };
    const LENGTH: Duration = Duration::from_secs(600);

    #[test]
    fn the_same_seed_draws_the_same_plan_and_another_one_another() {
        assert_eq!(draw(7, LENGTH, SHAPE), draw(7, LENGTH, SHAPE));
        assert_ne!(draw(7, LENGTH, SHAPE), draw(8, LENGTH, SHAPE));
    }

    #[test]
    fn every_part_is_struck_and_only_those_that_are_there() {
        let plan = draw(7, LENGTH, SHAPE);
        let has = |is: &dyn Fn(&Strike) -> bool| plan.iter().any(is);
        let blows = [Blow::Kill, Blow::Suspend, Blow::Hold, Blow::Swallow, Blow::Cut];
        for blow in blows.into_iter().chain([Blow::FailOver, Blow::Usurp]) {
            assert!(has(&|strike| strike.blow == blow), "{blow:?}");
        }
        for member in 0..3 {
            assert!(has(&|strike| strike.victim == Victim::Gateway(member)));
            assert!(has(&|strike| strike.victim == Victim::Etcd(member)));
        }
        let alone = Shape { gateways: 1, etcd_members: 0, has_database: false, ..SHAPE };
        let is_absent = |victim: Victim| match victim {
            Victim::Etcd(_) | Victim::Database => true,
            Victim::Gateway(gateway) => gateway > 0,
            Victim::Worker(..) | Victim::Link(_) => false,
        };
        assert!(!draw(7, LENGTH, alone).iter().any(|strike| is_absent(strike.victim)));
    }

    #[test]
    fn what_is_held_before_the_api_is_held_for_less_than_the_settle_time_allows() {
        let held = draw(7, LENGTH, SHAPE).into_iter().filter(|strike| {
            strike.blow == Blow::Hold
                && matches!(strike.victim, Victim::Link(Between::GatewayAndApi(_)))
        });
        let longest = held.map(|strike| strike.lasts).max().expect("there are some");
        assert!(longest <= LONGEST_HOLD_BEFORE_API);
    }
}
