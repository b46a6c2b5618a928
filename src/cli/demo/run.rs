//! One run of the story. With and without Fencegate it is the same, but for where writes are sent.

use std::time::Duration;

use anyhow::{Context, ensure};

use super::api::{self, AT_FIRST, Account, Api};
use super::gateway::Gateway;
use super::page::{Page, Tone};
use super::worker::{Answer, Worker};
use crate::fence::Token;

pub(super) const A_ADDS: i64 = 50;
pub(super) const B_ADDS: i64 = 30;

/// Long enough to read the account in, short enough to wait for.
const TTL_OF_A: Duration = Duration::from_secs(2);
/// Longer than the story, since nobody is to take over from B.
const TTL_OF_B: Duration = Duration::from_secs(60);

/// Where the workers send their requests.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    Straight,
    ThroughFencegate,
}

/// What was seen in one run.
pub(super) struct Observed {
    pub(super) token_of_a: Token,
    pub(super) token_of_b: Token,
    pub(super) answer_to_a: Answer,
    pub(super) answer_to_b: Answer,
    /// From the API's own record.
    pub(super) writes: Vec<Account>,
}

impl Observed {
    /// What the API holds in the end.
    pub(super) fn balance(&self) -> i64 {
        self.writes.last().unwrap_or(&AT_FIRST).balance
    }

    /// The same in words.
    fn state(&self) -> String {
        let balance = self.balance();
        if self.is_update_lost() {
            format!("{balance}: B's {B_ADDS} are lost")
        } else if self.is_a_kept_out() {
            format!("{balance}: A's write did not reach it")
        } else {
            format!("{balance}, which was not expected")
        }
    }

    /// A's write, made from what A had read before B's write, took the place of B's.
    pub(super) fn is_update_lost(&self) -> bool {
        self.writes == [written("B", B_ADDS), written("A", A_ADDS)]
    }

    /// Only B's write is there.
    pub(super) fn is_a_kept_out(&self) -> bool {
        self.writes == [written("B", B_ADDS)]
    }

    fn tone(&self) -> Tone {
        if self.is_a_kept_out() { Tone::Good } else { Tone::Bad }
    }
}

/// What a worker writes that read the account as it was at first.
fn written(by: &str, adds: i64) -> Account {
    Account { balance: AT_FIRST.balance + adds, written_by: by.to_owned() }
}

/// Plays the story and prints each step as it happens.
///
/// # Errors
/// A step did not happen. Whether the steps had the effect that is claimed is judged later.
pub(super) async fn run(way: Way, page: &mut Page) -> anyhow::Result<Observed> {
    let api = Api::start().await?;
    let gateway = Gateway::start(api.address).await?;
    let lease_url = gateway.lease_url();
    let account_url = match way {
        Way::Straight => format!("http://{}{}", api.address, api::PATH),
        Way::ThroughFencegate => format!("http://{}{}", gateway.proxy, api::PATH),
    };

    let mut a = Worker::start("A", A_ADDS, TTL_OF_A, &lease_url, &account_url)?;
    let token_of_a = a.token().await?;
    page.step(&format!("A takes the lease for {} s: token {token_of_a}", TTL_OF_A.as_secs()))?;
    let read_by_a = a.balance().await?;
    page.step(&format!(
        "A reads the balance, {read_by_a}, and is about to write {}",
        read_by_a + A_ADDS
    ))?;
    a.process.suspend().await?;
    page.step(&format!("A is suspended just then (SIGSTOP to process {})", a.process.id()))?;
    // From here on nothing but the suspension keeps A from writing.
    a.may_write()?;

    gateway.lease_ends().await?;
    page.step("A's lease runs out: a suspended process cannot renew it")?;
    let mut b = Worker::start("B", B_ADDS, TTL_OF_B, &lease_url, &account_url)?;
    let token_of_b = b.token().await?;
    page.step(&format!("B takes the lease: token {token_of_b}"))?;
    let balance = b.balance().await?;
    b.may_write()?;
    let answer_to_b = b.answer().await?;
    page.step(&format!(
        "B reads {balance} and writes {}: {}",
        balance + B_ADDS,
        answer_to_b.status
    ))?;

    ensure!(a.process.is_suspended()?, "worker A woke up by itself");
    a.process.resume()?;
    page.step("A is resumed (SIGCONT) and does not know that it slept")?;
    let answer_to_a = a.answer().await?;
    page.step(&format!("A writes {}: {}", read_by_a + A_ADDS, answer_to_a.status))?;

    let writes = api.writes().context("the API was sent something that is no account")?;
    let observed = Observed { token_of_a, token_of_b, answer_to_a, answer_to_b, writes };
    page.last_step(&format!("The API holds {}", observed.state()), observed.tone())?;
    Ok(observed)
}
