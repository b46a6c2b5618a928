//! What a worker runs under its lease: it writes to its resource through one gateway or another, notes what
//! it is told, and is not always patient.

use std::fs;
use std::io;
use std::net::SocketAddr;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::chance::Chance;
use super::http::{Answer, Connection, request};
use super::notes::{Notebook, Told};

/// A writer whose worker is gone must end, too.
const LIFE: Duration = Duration::from_secs(40);
/// A write that was refused for the time being is sent again so often.
const ATTEMPTS: usize = 8;
const PATIENCE: Duration = Duration::from_secs(12);
/// One in ten does not wait for longer.
const IMPATIENCE: Duration = Duration::from_millis(100);

struct Writer {
    job: String,
    resource: String,
    token: String,
    /// The gateways, and at last the worker's own proxy that stamps the token.
    doors: Vec<SocketAddr>,
    /// Whether it uses the latter, which is gone with the worker's run.
    stamps: bool,
    notebook: Notebook,
    chance: Chance,
    connection: Option<(usize, Connection)>,
}

/// The writer's own process.
pub fn main(dir: &Path, seed: u64) {
    let variable = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("{name} is not set"));
    let began = Instant::now();
    let job = variable("CHAOS_JOB");
    // Others learn by it whom to strike: the process group has this number.
    fs::write(dir.join(format!("{job}.pid")), std::process::id().to_string()).expect("writable");
    let stamping = variable("FENCING_PROXY").replace("http://", "");
    let doors = format!("{},{stamping}", variable("CHAOS_GATEWAYS"));
    let mut chance = Chance::new(seed);
    let mut writer = Writer {
        job,
        resource: variable("FENCING_RESOURCE"),
        token: variable("FENCING_TOKEN"),
        doors: doors.split(',').map(|door| door.parse().expect("an address")).collect(),
        notebook: Notebook::open(dir),
        stamps: chance.one_in(4),
        chance,
        connection: None,
    };
    for number in 1..=1 + writer.chance.below(60) {
        if began.elapsed() > LIFE || !writer.write(number) {
            return;
        }
        let pause = Duration::from_millis(100).mul_f64(writer.chance.fraction());
        thread::sleep(pause);
    }
}

impl Writer {
    /// Writes once. `false`: this token will never write again, or the writer has had enough.
    fn write(&mut self, number: usize) -> bool {
        for attempt in 1..=ATTEMPTS {
            let name = format!("{}-{number}.{attempt}", self.job);
            match self.attempt(&name) {
                Told::NotForwarded(code) => {
                    let is_final = code.starts_with("403") || code.starts_with("412");
                    // Now and then one does not believe it.
                    if is_final && !self.chance.one_in(4) {
                        return false;
                    }
                    thread::sleep(Duration::from_millis(200).mul_f64(self.chance.fraction()));
                }
                // One that goes away while its write is under way leaves it to the gateway.
                Told::Nothing => return !self.chance.one_in(6),
                Told::Done | Told::Unknown(_) => return true,
            }
        }
        true
    }

    fn attempt(&mut self, name: &str) -> Told {
        self.notebook.note(name, &self.resource, &self.token, &Told::Nothing);
        let told = match self.send(name) {
            Ok(answer) => told(&answer),
            Err(_) => Told::Nothing,
        };
        if told != Told::Nothing {
            self.notebook.note(name, &self.resource, &self.token, &told);
        }
        told
    }

    fn send(&mut self, name: &str) -> io::Result<Answer> {
        let last = self.doors.len() - 1;
        let door = if self.stamps { last } else { self.chance.below(last) };
        let token = [("Fencing-Token", self.token.as_str())];
        let stamp: &[_] = if self.stamps { &[] } else { &token };
        let bytes = request("PUT", &self.resource, stamp, name.as_bytes());
        let mut connection = match self.connection.take() {
            Some((to, connection)) if to == door => connection,
            _ => Connection::try_open(self.doors[door])?,
        };
        let patience = if self.chance.one_in(10) { IMPATIENCE } else { PATIENCE };
        connection.0.set_read_timeout(Some(patience))?;
        let answer = connection.try_exchange(bytes)?;
        self.connection = Some((door, connection));
        Ok(answer)
    }
}

fn told(answer: &Answer) -> Told {
    if (200..300).contains(&answer.status) {
        return Told::Done;
    }
    let problem: serde_json::Value = serde_json::from_slice(&answer.body).unwrap_or_default();
    let code = format!("{}_{}", answer.status, problem["code"].as_str().unwrap_or("-"));
    match problem["outcome"].as_str() {
        Some("not_forwarded") => Told::NotForwarded(code),
        _ => Told::Unknown(code),
    }
}
