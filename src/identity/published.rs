//! The keys that a URL publishes: fetched by a thread of its own, read by every core.
//!
//! Cores never wait for it: they compare a number, and take the new keys when it has changed. A token of an unknown key has the thread
//! look again, but no more often than every [`ASKED_EVERY`]. An answer that is bad, or none, leaves the keys as they are.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use rustls::crypto::aws_lc_rs;
use ureq::Agent;
use ureq::tls::{RootCerts, TlsConfig, TlsProvider};

use super::keys::Keys;

/// The least time between two fetches that unknown keys ask for.
const ASKED_EVERY: Duration = Duration::from_secs(5);
/// After a fetch that failed the next one follows this soon, then after twice that, and so on.
const RETRY_FIRST: Duration = Duration::from_secs(1);
/// One fetch, all of it.
const FETCH_MAX: Duration = Duration::from_secs(5);
/// Bytes of an answer.
const ANSWER_BYTES_MAX: u64 = 1 << 20;
/// What a start waits for the first keys, after which it goes on without them.
const FIRST_WAIT: Duration = Duration::from_secs(2);

/// The keys of now, for all cores.
#[derive(Debug)]
pub(super) struct KeyRing {
    /// Changes with the keys.
    version: AtomicU64,
    keys: Mutex<Arc<Keys>>,
    is_asked: AtomicBool,
    asked: (Mutex<()>, Condvar),
}

impl KeyRing {
    pub(super) fn new(keys: Keys) -> Self {
        Self {
            version: AtomicU64::new(0),
            keys: Mutex::new(Arc::new(keys)),
            is_asked: AtomicBool::new(false),
            asked: (Mutex::new(()), Condvar::new()),
        }
    }

    /// Changes when the keys do.
    #[inline]
    pub(super) fn version(&self) -> u64 {
        self.version.load(Ordering::Acquire)
    }

    pub(super) fn keys(&self) -> Arc<Keys> {
        Arc::clone(&lock(&self.keys))
    }

    pub(super) fn replace(&self, keys: Keys) {
        *lock(&self.keys) = Arc::new(keys);
        self.version.fetch_add(1, Ordering::Release);
    }

    /// Has the thread look for a key that nobody knows.
    pub(super) fn ask(&self) {
        if !self.is_asked.swap(true, Ordering::Relaxed) {
            let _held = lock(&self.asked.0);
            self.asked.1.notify_one();
        }
    }

    /// Sleeps until `due`, or until somebody asked and `asked_from` has come.
    fn sleep(&self, due: Instant, asked_from: Instant) {
        let mut held = lock(&self.asked.0);
        loop {
            let now = Instant::now();
            let until = if self.is_asked.load(Ordering::Relaxed) { due.min(asked_from) } else { due };
            if until <= now {
                break;
            }
            held = self.asked.1.wait_timeout(held, until - now).map_or_else(|broken| broken.into_inner().0, |woken| woken.0);
        }
        self.is_asked.store(false, Ordering::Relaxed);
    }
}

/// What a thread that panicked left in the lock is whole: it is replaced at once or not at all.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Fetches the keys of `url` now and every `refresh`, on a thread that lives as long as the process; waits a little for the first.
pub(super) fn follow(ring: Arc<KeyRing>, url: String, refresh: Duration) {
    let (first, fetched) = mpsc::channel();
    thread::spawn(move || {
        let agent = agent();
        let mut retry = RETRY_FIRST;
        let mut has_failed = false;
        loop {
            let began = Instant::now();
            let pause = match fetch(&agent, &url).and_then(|answer| ring.keys().with_published(&answer).ok_or(UNUSABLE.to_owned())) {
                Ok(keys) => {
                    log::info!(url = shown(&url), keys = keys.published_count(); "the keys of tokens were fetched");
                    ring.replace(keys);
                    (retry, has_failed) = (RETRY_FIRST, false);
                    refresh
                }
                Err(cause) => {
                    // Said once, until it works again.
                    if !std::mem::replace(&mut has_failed, true) {
                        log::warn!(url = shown(&url), cause = cause.as_str(); "the keys of tokens cannot be fetched; those known stay");
                    }
                    let pause = retry.min(refresh);
                    retry = retry.saturating_mul(2);
                    pause
                }
            };
            // A start that did not wait so long is no failure.
            let _ = first.send(());
            ring.sleep(began + pause, began + ASKED_EVERY);
        }
    });
    let _ = fetched.recv_timeout(FIRST_WAIT);
}

const UNUSABLE: &str = "the answer is no JWK set with a public RSA or Ed25519 key";

fn agent() -> Agent {
    let tls = TlsConfig::builder()
        .provider(TlsProvider::Rustls)
        .root_certs(RootCerts::PlatformVerifier)
        .unversioned_rustls_crypto_provider(Arc::new(aws_lc_rs::default_provider()))
        .build();
    // A redirect could lead from https to http: it counts as a bad answer.
    Agent::config_builder().tls_config(tls).timeout_global(Some(FETCH_MAX)).max_redirects(0).build().new_agent()
}

/// The body of a 200, or why there is none.
fn fetch(agent: &Agent, url: &str) -> Result<Vec<u8>, String> {
    let mut answer = agent.get(url).call().map_err(|error| error.to_string())?;
    if answer.status().as_u16() != 200 {
        return Err(format!("status {}", answer.status().as_u16()));
    }
    answer.body_mut().with_config().limit(ANSWER_BYTES_MAX).read_to_vec().map_err(|error| error.to_string())
}

/// A URL without what may be secret in it: the user before the host and the query.
fn shown(url: &str) -> String {
    let bare = url.split(['?', '#']).next().unwrap_or_default();
    match bare.split_once("://") {
        Some((scheme, rest)) => {
            let (authority, path) = rest.find('/').map_or((rest, ""), |at| rest.split_at(at));
            format!("{scheme}://{}{path}", authority.rsplit('@').next().unwrap_or_default())
        }
        None => bare.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shown_url_has_no_user_and_no_query() {
        assert_eq!(shown("https://user:hush@idp.example:8443/keys?code=hush#x"), "https://idp.example:8443/keys");
        assert_eq!(shown("http://idp"), "http://idp");
    }
}
