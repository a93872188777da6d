//! Clients at work on a cluster while its nodes come and go: callers and responders, producers, consumers with leases; and what came of it.
//!
//! Each client keeps to one node until that refuses it or goes away, then it goes on at another, as a client of any cluster does. What
//! was acknowledged is written down; what is refused with 503 is tried again.

use std::collections::BTreeMap;
use std::io::{ErrorKind, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::sync::{Mutex, RwLock};
use std::thread::sleep;
use std::time::{Duration, Instant};

use serde_json::{Value, json};

use crate::process::client::{Answer, Client, pop, post, push};

/// A request that fails for so long is no transition any more.
const GIVE_UP: Duration = Duration::from_secs(15);
/// Before a client that was refused tries again.
const PAUSE: Duration = Duration::from_millis(5);
/// How long a consumer's pop waits.
const WAIT_MS: u64 = 2_000;

/// See the module.
#[derive(Default)]
pub(crate) struct Load {
    addresses: RwLock<Vec<SocketAddr>>,
    is_over: AtomicBool,
    pub(crate) calls: AtomicU64,
    pub(crate) pushes: AtomicU64,
    refused: AtomicU64,
    /// How long a client waits for an answer when a node may be frozen: then it goes on elsewhere. None: nobody lets it wait for long.
    patience: Option<Duration>,
    /// The longest that a request was refused until it was carried out.
    worst: Mutex<Duration>,
    /// Per queue: what was acknowledged, and what consumers were given, in order of their first sight.
    ledger: Mutex<BTreeMap<String, Entry>>,
    faults: Mutex<Vec<String>>,
}

#[derive(Default)]
struct Entry {
    acknowledged: Vec<u64>,
    /// Pushes of which nobody knows: they may have happened, and were repeated.
    doubtful: Vec<u64>,
    given: Vec<u64>,
    done: Vec<u64>,
}

/// One client: its connection, and the node that it keeps to.
struct Hand<'a> {
    load: &'a Load,
    at: usize,
    client: Option<Client>,
}

/// How a request ended.
enum Ended {
    Answered(Answer),
    /// Nobody knows whether it was carried out before it was repeated.
    AfterDoubt(Answer),
    Over,
}

impl Load {
    /// Of clients that wait for so long when a node may be frozen.
    pub(crate) fn with_patience(patience: Duration) -> Self {
        Self { patience: Some(patience), ..Self::default() }
    }

    /// The nodes that serve now.
    pub(crate) fn serve_at(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.write().expect("unpoisoned") = addresses;
    }

    pub(crate) fn end(&self) {
        self.is_over.store(true, Relaxed);
    }

    fn is_over(&self) -> bool {
        self.is_over.load(Relaxed)
    }

    /// The longest time that a request was refused, since it was asked last.
    pub(crate) fn take_worst(&self) -> Duration {
        std::mem::take(&mut *self.worst.lock().expect("unpoisoned"))
    }

    /// Calls, one after another, at a rate.
    pub(crate) fn call(&self, seed: usize, queue: &str, every: Duration) {
        let mut hand = Hand { load: self, at: seed, client: None };
        let mut next = Instant::now();
        for n in 0.. {
            if self.is_over() {
                return;
            }
            let body = json!({"queue": queue, "payload": n, "timeout": 10_000}).to_string();
            if let Ended::Answered(answer) | Ended::AfterDoubt(answer) = hand.ask(&post("/api/v1/ephemeral/call", &body))
                && self.expect_status(&answer, 200, "a call")
            {
                if answer.json()["payload"] != json!([n]) {
                    self.fault(format!("a call got another's answer: {answer:?}"));
                }
                self.calls.fetch_add(1, Relaxed);
            }
            next += every;
            sleep(next.saturating_duration_since(Instant::now()));
        }
    }

    /// Answers calls with what they said, in a list.
    pub(crate) fn respond(&self, seed: usize, queue: &str) {
        let mut hand = Hand { load: self, at: seed, client: None };
        let pop = pop(queue, &format!("&batch=8&wait=true&timeout={WAIT_MS}"));
        while !self.is_over() {
            let (Ended::Answered(answer) | Ended::AfterDoubt(answer)) = hand.ask(&pop) else { return };
            if !self.expect_status(&answer, 200, "a responder's pop") {
                continue;
            }
            let reply = |of: &Value| json!({"id": of["id"], "replyTo": of["replyTo"], "payload": [of["payload"]]});
            let replies: Vec<_> = answer.messages().iter().map(reply).collect();
            if replies.is_empty() {
                continue;
            }
            let body = json!({"queue": queue, "replies": replies}).to_string();
            if let Ended::Answered(answer) | Ended::AfterDoubt(answer) = hand.ask(&post("/api/v1/ephemeral/reply", &body)) {
                self.expect_status(&answer, 200, "a reply");
            }
        }
    }

    /// Pushes numbers to each of some queues in turn, at a rate.
    pub(crate) fn produce(&self, seed: usize, queues: &[String], every: Duration) {
        let mut hand = Hand { load: self, at: seed, client: None };
        let mut next = Instant::now();
        for n in 0_u64.. {
            for queue in queues {
                if self.is_over() {
                    return;
                }
                let ended = hand.ask(&push(queue, "Default", [n]));
                let (answer, is_doubtful) = match ended {
                    Ended::Answered(answer) => (answer, false),
                    Ended::AfterDoubt(answer) => (answer, true),
                    Ended::Over => return,
                };
                if self.expect_status(&answer, 201, "a push") {
                    let mut ledger = self.ledger.lock().expect("unpoisoned");
                    let entry = ledger.entry(queue.clone()).or_default();
                    entry.acknowledged.push(n);
                    if is_doubtful {
                        entry.doubtful.push(n);
                    }
                    self.pushes.fetch_add(1, Relaxed);
                }
                next += every;
                sleep(next.saturating_duration_since(Instant::now()));
            }
        }
    }

    /// Takes messages one by one with a lease, and acks each.
    pub(crate) fn consume(&self, seed: usize, queue: &str) {
        let mut hand = Hand { load: self, at: seed, client: None };
        let pop = pop(queue, &format!("&batch=1&wait=true&timeout={WAIT_MS}"));
        loop {
            let is_last = self.is_over();
            let Some(answer) = hand.ask_to_the_end(&pop) else { return };
            if !self.expect_status(&answer, 200, "a consumer's pop") {
                continue;
            }
            let Some(message) = answer.messages().pop() else {
                if is_last {
                    return;
                }
                continue;
            };
            let payload = message["payload"].as_u64().expect("a number");
            self.note(queue, |entry| entry.given.push(payload));
            let body = json!({"queue": queue, "acks": [{"id": message["id"]}]}).to_string();
            let Some(answer) = hand.ask_to_the_end(&post("/api/v1/ephemeral/ack", &body)) else { return };
            if self.expect_status(&answer, 200, "an ack") && answer.json()["results"][0]["outcome"] == "acked" {
                self.note(queue, |entry| entry.done.push(payload));
            }
        }
    }

    fn note(&self, queue: &str, f: impl FnOnce(&mut Entry)) {
        f(self.ledger.lock().expect("unpoisoned").entry(queue.to_owned()).or_default());
    }

    fn fault(&self, fault: String) {
        self.faults.lock().expect("unpoisoned").push(fault);
    }

    fn expect_status(&self, answer: &Answer, status: u16, what: &str) -> bool {
        if answer.status != status {
            self.fault(format!("{what}: {answer:?}"));
        }
        answer.status == status
    }

    /// Whatever was not as it should be: messages that were acknowledged and given to nobody, or out of order, or errors that no client
    /// should see. `may_lose`: a node died with what it held; `may_bend`: one was taken for dead, and came back.
    pub(crate) fn faults(&self, may_lose: bool, may_bend: bool) -> Vec<String> {
        let mut faults = std::mem::take(&mut *self.faults.lock().expect("unpoisoned"));
        for (queue, entry) in &*self.ledger.lock().expect("unpoisoned") {
            let lost: Vec<_> = entry.acknowledged.iter().filter(|n| !entry.given.contains(n)).collect();
            if !lost.is_empty() && !may_lose {
                faults.push(format!("{queue}: {lost:?} of {} were given to nobody", entry.acknowledged.len()));
            }
            let is_doubtful = |n: &u64| entry.doubtful.contains(n);
            if let Some(bent) = entry.given.windows(2).find(|pair| pair[0] > pair[1] && !is_doubtful(&pair[1])).filter(|_| !may_bend) {
                faults.push(format!("{queue}: {bent:?}, out of order in {:?}", entry.given));
            }
        }
        faults
    }

    /// What was done, for the record.
    pub(crate) fn summary(&self) -> String {
        let ledger = self.ledger.lock().expect("unpoisoned");
        let given: usize = ledger.values().map(|entry| entry.given.len()).sum();
        let done: usize = ledger.values().map(|entry| entry.done.len()).sum();
        let lost: usize = ledger.values().map(|entry| entry.acknowledged.iter().filter(|n| !entry.given.contains(n)).count()).sum();
        let [calls, pushes, refused] = [&self.calls, &self.pushes, &self.refused].map(|count| count.load(Relaxed));
        format!("{calls} calls, {pushes} pushes, {given} given, {done} acked, {lost} with a dead node, {refused} refused and repeated")
    }
}

impl Hand<'_> {
    fn connection(&mut self) -> Option<&mut Client> {
        if self.client.is_none() {
            let addresses = self.load.addresses.read().expect("unpoisoned");
            let address = *addresses.get(self.at % addresses.len().max(1))?;
            let stream = TcpStream::connect_timeout(&address, Duration::from_millis(500)).ok()?;
            let client = Client::over(stream);
            if let Some(patience) = self.load.patience {
                client.stream.set_read_timeout(Some(patience)).expect("a socket");
            }
            self.client = Some(client);
        }
        self.client.as_mut()
    }

    /// Asks until it is carried out.
    fn ask(&mut self, request: &str) -> Ended {
        let began = Instant::now();
        let (mut is_doubtful, mut was_refused) = (false, None);
        loop {
            match self.try_once(request) {
                Ok(answer) if answer.status != 503 => {
                    if let Some(first) = was_refused {
                        let mut worst = self.load.worst.lock().expect("unpoisoned");
                        *worst = worst.max(Instant::now().saturating_duration_since(first));
                    }
                    return if is_doubtful { Ended::AfterDoubt(answer) } else { Ended::Answered(answer) };
                }
                Ok(answer) => {
                    is_doubtful |= answer.json()["code"] == "ephemeral_forward_failed";
                    if answer.header("retry-after").is_none() {
                        self.load.fault(format!("503 without Retry-After: {answer:?}"));
                    }
                }
                // The connection ended before an answer.
                Err(was_sent) => is_doubtful |= was_sent,
            }
            was_refused.get_or_insert_with(Instant::now);
            self.load.refused.fetch_add(1, Relaxed);
            self.at += 1;
            self.client = None;
            if began.elapsed() > GIVE_UP {
                self.load.fault(format!("refused for {GIVE_UP:?}: {request}"));
                return Ended::Over;
            }
            if self.load.is_over() && was_refused.is_some_and(|first| first.elapsed() > GIVE_UP / 3) {
                return Ended::Over;
            }
            sleep(PAUSE);
        }
    }

    fn ask_to_the_end(&mut self, request: &str) -> Option<Answer> {
        match self.ask(request) {
            Ended::Answered(answer) | Ended::AfterDoubt(answer) => Some(answer),
            Ended::Over => None,
        }
    }

    /// `Err`: there was no answer; whether the request may have been read.
    fn try_once(&mut self, request: &str) -> Result<Answer, bool> {
        let Some(client) = self.connection() else { return Err(false) };
        if client.stream.write_all(request.as_bytes()).is_err() {
            return Err(true);
        }
        match client.next(true) {
            Ok(answer) => {
                if answer.closes() {
                    self.client = None;
                }
                Ok(answer)
            }
            Err(error) => {
                if error.kind() == ErrorKind::WouldBlock && self.load.patience.is_none() {
                    self.load.fault(format!("no answer to {request}"));
                }
                Err(true)
            }
        }
    }
}
