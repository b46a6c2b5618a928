//! The end of the demo: what the late writer was told, what was claimed, and what to do next.

use anyhow::bail;
use serde_json::Value;

use super::api;
use super::page::Page;
use super::run::{B_ADDS, Observed};
use super::worker::Answer;
use crate::problem::{Code, Problem};

/// The headers of a refusal that a client acts on.
const TELLING_HEADERS: &[&str] = &["content-type", "retry-after", "x-should-retry"];

/// Prints the end.
///
/// # Errors
/// A claim does not hold.
pub(super) fn tell(without: &Observed, with: &Observed, page: &mut Page) -> anyhow::Result<()> {
    page.heading("The answer to A's late write in run 2")?;
    page.quote(&quoted(&with.answer_to_a))?;

    page.heading("Summary")?;
    page.quote(&table(without, with))?;
    let mut failed = Vec::new();
    for (claim, is_true) in claims(without, with) {
        page.verdict(is_true, &claim)?;
        if !is_true {
            failed.push(claim);
        }
    }
    page.gap()?;
    if !failed.is_empty() {
        bail!("not everything was as claimed: {}", failed.join("; "));
    }
    next(page)
}

/// The answer as it would stand on the wire, the body spread out.
fn quoted(answer: &Answer) -> String {
    let mut text = format!("{} {}\n", answer.version, answer.status);
    for (name, value) in &answer.headers {
        if TELLING_HEADERS.contains(&name.as_str()) {
            text += &format!("{name}: {value}\n");
        }
    }
    text.push('\n');
    match serde_json::from_str::<Value>(&answer.body) {
        Ok(document) => text += &format!("{document:#}"),
        Err(_) => text += &answer.body,
    }
    text
}

fn table(without: &Observed, with: &Observed) -> String {
    let tokens = |run: &Observed| format!("A {}, B {}", run.token_of_a, run.token_of_b);
    let status = |answer: &Answer| answer.status.clone();
    let balance = |run: &Observed| run.balance().to_string();
    [
        ("", "run 1".to_owned(), "run 2: with Fencegate".to_owned()),
        ("tokens", tokens(without), tokens(with)),
        ("answer to B", status(&without.answer_to_b), status(&with.answer_to_b)),
        ("answer to A", status(&without.answer_to_a), status(&with.answer_to_a)),
        ("reached the API", reached(without), reached(with)),
        ("the API holds", balance(without), balance(with)),
    ]
    .map(|(name, left, right)| format!("{name:<17}{left:<22}{right}"))
    .join("\n")
}

/// The writes in the API's own record.
fn reached(run: &Observed) -> String {
    let writes: Vec<_> = run
        .writes
        .iter()
        .map(|account| format!("{} {}", account.written_by, account.balance))
        .collect();
    writes.join(", then ")
}

/// What the demo says of itself, and whether it was so.
fn claims(without: &Observed, with: &Observed) -> [(String, bool); 4] {
    let is_ordered = |run: &Observed| run.token_of_b > run.token_of_a;
    [
        (
            "A was suspended past its lease; B's lease has the higher token".to_owned(),
            is_ordered(without) && is_ordered(with),
        ),
        (
            format!("Run 1: the API stored A's late write, and B's {B_ADDS} are lost"),
            without.is_update_lost(),
        ),
        (
            format!(
                "Run 2: A was refused, with {} and both tokens",
                Code::StaleFencingToken.as_str()
            ),
            is_stale_refusal(with),
        ),
        ("Run 2: B's write reached the API, and A's did not".to_owned(), with.is_a_kept_out()),
    ]
}

fn is_stale_refusal(run: &Observed) -> bool {
    let code = Code::StaleFencingToken;
    let Answer { status, headers, body, .. } = &run.answer_to_a;
    let Ok(problem) = serde_json::from_str::<Value>(body) else { return false };
    let expected = [
        ("code", code.as_str().to_owned()),
        ("outcome", "not_forwarded".to_owned()),
        ("resource", api::PATH.to_owned()),
        ("presented_token", run.token_of_a.to_string()),
        ("highest_token", run.token_of_b.to_string()),
    ];
    let has = |name: &str, value: &str| headers.iter().any(|(n, v)| n == name && v == value);
    *status == code.status().to_string()
        && has("content-type", Problem::MEDIA_TYPE)
        && has("x-should-retry", "false")
        && expected.iter().all(|(key, value)| problem[key] == value.as_str())
}

fn next(page: &mut Page) -> anyhow::Result<()> {
    let program = program();
    page.heading("What to do next")?;
    page.text("Put Fencegate in front of your own API; here it listens on port 9000:")?;
    page.command(&serve_command(&program))?;
    page.text(
        "From now on a write to port 8080 needs a token. In another terminal, let a job take a \
         lease and write under it:",
    )?;
    page.command(&run_command(&program))?;
    page.text(
        "README.md shows both step by step. docs/guarantees.md says what is promised and what it \
         rests on, docs/run.md what happens to a job that loses its lease.",
    )?;
    Ok(())
}

fn serve_command(program: &str) -> String {
    format!("{program}serve --upstream http://127.0.0.1:9000")
}

fn run_command(program: &str) -> String {
    let path = api::PATH;
    format!(
        "{program}run --resource {path} -- sh -c '\n  \
         curl -sS -H \"Fencing-Token: $FENCING_TOKEN\" \\\n    \
         -X PUT -d hello http://127.0.0.1:8080{path}'"
    )
}

/// The beginning of a command line: this program as the reader called it, so that the rest can be
/// pasted, and what stands between it and its arguments.
fn program() -> String {
    let called = std::env::args().next().unwrap_or_default();
    let is_plain = called.chars().all(|c| c.is_ascii_alphanumeric() || "/._-".contains(c));
    match called.len() {
        1..=36 if is_plain => format!("{called} "),
        37..=70 if is_plain => format!("{called} \\\n  "),
        _ => "fencegate ".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::super::api::Account;
    use super::*;
    use crate::fence::Token;

    fn token(number: u64) -> Token {
        Token::new(number).expect("in range")
    }

    fn answer(status: &str, headers: &[(&str, &str)], body: &str) -> Answer {
        let headers = headers.iter().map(|(n, v)| ((*n).to_owned(), (*v).to_owned())).collect();
        Answer {
            version: "HTTP/1.1".to_owned(),
            status: status.to_owned(),
            headers,
            body: body.to_owned(),
        }
    }

    fn observed(answer_to_a: Answer, writes: &[(&str, i64)]) -> Observed {
        let account = |(by, balance): &(&str, i64)| Account {
            balance: *balance,
            written_by: (*by).to_owned(),
        };
        Observed {
            token_of_a: token(1),
            token_of_b: token(2),
            answer_to_a,
            answer_to_b: answer("200 OK", &[], ""),
            writes: writes.iter().map(account).collect(),
        }
    }

    fn refusal() -> Answer {
        let mut problem = Problem::new(Code::StaleFencingToken, "");
        problem.resource = Some(api::PATH.to_owned());
        problem.presented_token = Some(token(1));
        problem.highest_token = Some(token(2));
        let response = problem.to_response();
        let headers: Vec<_> = response
            .headers()
            .iter()
            .map(|(name, value)| (name.as_str(), value.to_str().expect("ASCII")))
            .collect();
        let body = String::from_utf8_lossy(response.body());
        answer("412 Precondition Failed", &headers, &body)
    }

    fn verdicts(without: &Observed, with: &Observed) -> [bool; 4] {
        claims(without, with).map(|(_, is_true)| is_true)
    }

    #[test]
    fn each_claim_rests_on_what_was_seen() {
        let lost = || observed(answer("200 OK", &[], ""), &[("B", 130), ("A", 150)]);
        let kept = || observed(refusal(), &[("B", 130)]);
        assert_eq!(verdicts(&lost(), &kept()), [true; 4]);

        assert_eq!(verdicts(&kept(), &kept()), [true, false, true, true]);
        let passed = observed(refusal(), &[("B", 130), ("A", 150)]);
        assert_eq!(verdicts(&lost(), &passed), [true, true, true, false]);
        let silent = observed(answer("412 Precondition Failed", &[], "{}"), &[("B", 130)]);
        assert_eq!(verdicts(&lost(), &silent), [true, true, false, true]);
        let other = Observed { token_of_b: token(1), ..kept() };
        assert_eq!(verdicts(&lost(), &other), [false, true, false, true]);
    }

    #[test]
    fn the_commands_that_are_shown_are_understood() {
        for command in [serve_command("fencegate "), run_command("fencegate ")] {
            let parsed = crate::cli::Cli::try_parse_from(command.split_whitespace());
            assert!(parsed.is_ok(), "{command}: {parsed:?}");
        }
    }
}
