//! What there is at one moment: the store's rows, what each instance knows, and the writes.

use stateright::Representative;

/// A fencing token; 0 stands for none.
pub(crate) type Token = u8;

pub(crate) const TOKENS: usize = 3;
pub(crate) const INSTANCES: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct State {
    /// In the store: the fence's high-water mark.
    pub(crate) mark: Token,
    pub(crate) instances: [Instance; INSTANCES],
    /// The highest token of which a write took effect at the API.
    pub(crate) last_effect: Token,
    pub(crate) broken: Option<Promise>,
    /// What an asynchronous standby has instead, as long as the last commit did not reach it.
    pub(crate) standby: Option<Standby>,
}

/// Which promise was broken; the worse one comes last.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Promise {
    /// A write was sent while one with a smaller token could still take effect.
    Drained,
    /// A write was sent, or took effect, after one with a higher token.
    Ordered,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Standby {
    pub(crate) mark: Token,
    pub(crate) grants: [TokenSet; INSTANCES],
}

/// One run of one gateway. Ids are not used again, so an instance that restarts is another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instance {
    /// In the store: its row in `instances`.
    pub(crate) record: Record,
    /// In the store: its rows in `grants`.
    pub(crate) grants: TokenSet,
    /// Under way to the store: the deletion of an idle grant. Only remembered where it matters.
    pub(crate) giving_back: Token,
    /// Under way from the store: a renewal was answered; how many ticks ago it was asked for.
    pub(crate) renewed: Option<u8>,
    /// Under way to the store: what a raise has seen of others' grants before it got the fence's
    /// row.
    pub(crate) snapshot: Option<TokenSet>,
    /// In memory: whether the process lives. One that is suspended lives, and does nothing.
    pub(crate) running: bool,
    /// In memory: ticks until its own deadline, at which it stops.
    pub(crate) lease_left: u8,
    pub(crate) cell: Cell,
    /// Its write with token `t` is at `t - 1`.
    pub(crate) writes: [Write; TOKENS],
}

/// The store's record of an instance.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Record {
    /// Others have seen the same count of renewals for so many ticks.
    Live { unrenewed: u8 },
    /// Others have seen it fenced for so many ticks.
    Fenced { since: u8 },
    /// Its grants were deleted.
    Void,
}

/// What an instance has in memory of the resource.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Cell {
    /// The token that it has the grant for, as far as it knows the newest.
    pub(crate) grant: Token,
    /// The store said that no other instance has a grant below that token.
    pub(crate) others_over: bool,
    /// The store's server changed: the mark is to be asserted before anything is admitted.
    pub(crate) must_reassert: bool,
}

/// A write of an instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum Write {
    /// None, or it is over: it took effect, or it no longer can.
    #[default]
    Over,
    /// A permit exists.
    Admitted,
    /// It passed the deadline check before write(2). It is sent at most `window - 1` ticks later.
    Checked { window: u8 },
    /// It is with the API, and takes effect now or within `left` ticks.
    Sent { left: u8 },
    /// Its connection was cut; the rest as above.
    InDoubt { left: u8 },
}

impl State {
    pub(crate) fn fresh(instances: usize, lease: u8) -> State {
        let mut all = [Instance::ABSENT; INSTANCES];
        all[..instances].fill(Instance::fresh(lease));
        State { mark: 0, instances: all, last_effect: 0, broken: None, standby: None }
    }

    /// The tokens for which an instance other than `g` has a grant.
    pub(crate) fn grants_of_others(&self, g: usize) -> TokenSet {
        TokenSet(self.others(g).fold(0, |all, other| all | other.grants.0))
    }

    /// Whether a write with a smaller token can still take effect, of whatever instance. One that
    /// has not passed its last check counts when it does.
    pub(crate) fn any_older_write(&self, token: Token) -> bool {
        self.writes(|t| t < token).any(|write| !matches!(write, Write::Over | Write::Admitted))
    }

    /// Whether a write with a higher token was sent already.
    pub(crate) fn any_newer_write(&self, token: Token) -> bool {
        self.last_effect > token
            || self
                .writes(|t| t > token)
                .any(|write| matches!(write, Write::Sent { .. } | Write::InDoubt { .. }))
    }

    fn writes(&self, of: impl Fn(Token) -> bool) -> impl Iterator<Item = Write> {
        let all = self.instances.iter().flat_map(|instance| (1..).zip(instance.writes));
        all.filter(move |(t, _)| of(*t)).map(|(_, write)| write)
    }

    /// Somebody besides `g` who can fence it.
    pub(crate) fn has_observer(&self, g: usize) -> bool {
        self.others(g).any(|other| other.running)
    }

    fn others(&self, g: usize) -> impl Iterator<Item = &Instance> {
        self.instances.iter().enumerate().filter(move |(i, _)| *i != g).map(|(_, other)| other)
    }
}

/// Instances are alike: two states that differ only in who is who are one.
impl Representative for State {
    fn representative(&self) -> State {
        let mut state = *self;
        state.instances.sort_unstable();
        state
    }
}

impl Instance {
    pub(crate) const ABSENT: Instance = Instance {
        record: Record::Void,
        grants: TokenSet(0),
        giving_back: 0,
        renewed: None,
        snapshot: None,
        running: false,
        lease_left: 0,
        cell: Cell { grant: 0, others_over: false, must_reassert: false },
        writes: [Write::Over; TOKENS],
    };

    fn fresh(lease: u8) -> Instance {
        let record = Record::Live { unrenewed: 0 };
        Instance { record, running: true, lease_left: lease, ..Instance::ABSENT }
    }

    pub(crate) fn is_live(&self) -> bool {
        matches!(self.record, Record::Live { .. })
    }

    pub(crate) fn write(&mut self, token: Token) -> &mut Write {
        &mut self.writes[usize::from(token) - 1]
    }

    pub(crate) fn any_write_below(&self, token: Token) -> bool {
        self.writes[..usize::from(token) - 1].iter().any(|write| *write != Write::Over)
    }
}

/// Some of the tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct TokenSet(u8);

impl TokenSet {
    pub(crate) const NONE: TokenSet = TokenSet(0);

    pub(crate) fn insert(&mut self, token: Token) {
        self.0 |= 1 << token;
    }

    pub(crate) fn remove(&mut self, token: Token) {
        self.0 &= !(1 << token);
    }

    pub(crate) fn contains(self, token: Token) -> bool {
        self.0 & (1 << token) != 0
    }

    pub(crate) fn lowest(self) -> TokenSet {
        TokenSet(self.0 & self.0.wrapping_neg())
    }

    pub(crate) fn any_below(self, token: Token) -> bool {
        self.0 & ((1 << token) - 1) != 0
    }
}
