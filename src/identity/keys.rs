//! The keys that tokens are checked with: one secret, one public key, and those that a URL publishes.
//!
//! Invariant: a key checks the algorithms of its own family alone, so that a public key is never taken for a secret.

use std::fmt;
use std::fs;
use std::path::PathBuf;

use jsonwebtoken::{Algorithm, AlgorithmFamily, DecodingKey};
use serde_json::Value;

use super::settings::TokenSettings;

/// Published keys that are kept at most.
const PUBLISHED_KEYS_MAX: usize = 100;
/// Keys tried for one token at most: a set may name two alike while one replaces the other.
pub(super) const CANDIDATES_MAX: usize = 4;

/// One key.
#[derive(Debug)]
pub(super) struct Key {
    /// Which it is: the same for as long as it is published without a break.
    pub(super) number: u64,
    pub(super) decoding: DecodingKey,
    /// Of a published key: its name, the one algorithm it is for (None: all of its family), and its own text, to tell it from others.
    published: Option<Published>,
}

#[derive(Debug, PartialEq, Eq)]
struct Published {
    kid: Option<String>,
    algorithm: Option<Algorithm>,
    text: String,
}

impl Key {
    fn fits(&self, algorithm: Algorithm) -> bool {
        let only = self.published.as_ref().and_then(|published| published.algorithm);
        self.decoding.family() == algorithm.family() && only.is_none_or(|only| only == algorithm)
    }

    fn kid(&self) -> Option<&str> {
        self.published.as_ref()?.kid.as_deref()
    }
}

/// All keys at one time.
#[derive(Debug, Default)]
pub(super) struct Keys {
    keys: Vec<Key>,
    last_number: u64,
}

impl Keys {
    /// The keys of the settings, without those that are published.
    pub(super) fn of(settings: &TokenSettings) -> Result<Self, KeyError> {
        let mut keys = Self::default();
        if let Some(secret) = secret(settings)? {
            keys.add(DecodingKey::from_secret(&secret).map_err(|_| KeyError::SecretEmpty)?, None);
        }
        if let Some(text) = &settings.public_key {
            for decoding in public_keys(text, settings)? {
                keys.add(decoding, None);
            }
        }
        Ok(keys)
    }

    fn add(&mut self, decoding: DecodingKey, published: Option<Published>) {
        self.last_number += 1;
        self.keys.push(Key { number: self.last_number, decoding, published });
    }

    /// The same keys with `document` (a JWK set) in place of those that were published before; keys that stay keep their numbers.
    /// None: it is no set, or none of its keys can be used.
    pub(super) fn with_published(&self, document: &[u8]) -> Option<Self> {
        let document: Value = serde_json::from_slice(document).ok()?;
        let listed = document.get("keys")?.as_array()?;
        let mut next = Self { keys: Vec::new(), last_number: self.last_number };
        for key in self.keys.iter().filter(|key| key.published.is_none()) {
            next.keys.push(Key { number: key.number, decoding: key.decoding.clone(), published: None });
        }
        let fixed_count = next.keys.len();
        for (decoding, published) in listed.iter().filter_map(read_published).take(PUBLISHED_KEYS_MAX) {
            match self.keys.iter().find(|key| key.published.as_ref() == Some(&published)) {
                Some(same) => next.keys.push(Key { number: same.number, decoding, published: Some(published) }),
                None => next.add(decoding, Some(published)),
            }
        }
        (next.keys.len() > fixed_count).then_some(next)
    }

    /// Keys that a token of this algorithm and name may be signed with: published ones of that name (without a name: the only one that
    /// fits), then those of the settings.
    pub(super) fn candidates(&self, algorithm: Algorithm, kid: Option<&str>) -> Vec<&Key> {
        let fitting = || self.keys.iter().filter(move |key| key.fits(algorithm));
        let mut found: Vec<_> = match kid {
            Some(kid) => fitting().filter(|key| key.kid() == Some(kid)).take(CANDIDATES_MAX).collect(),
            None => fitting().filter(|key| key.published.is_some()).take(2).collect(),
        };
        if kid.is_none() && found.len() > 1 {
            found.clear();
        }
        found.extend(fitting().filter(|key| key.published.is_none()));
        found
    }

    /// Whether a published key has this name.
    pub(super) fn are_named(&self, kid: &str) -> bool {
        self.keys.iter().any(|key| key.kid() == Some(kid))
    }

    /// Whether this key is still one of them.
    pub(super) fn has(&self, number: u64) -> bool {
        self.keys.iter().any(|key| key.number == number)
    }

    /// How many are published.
    pub(super) fn published_count(&self) -> usize {
        self.keys.iter().filter(|key| key.published.is_some()).count()
    }
}

/// One member of a JWK set (RFC 7517): a public RSA or Ed25519 key that may check signatures. Anything else is passed over.
fn read_published(jwk: &Value) -> Option<(DecodingKey, Published)> {
    let text = |name: &str| jwk.get(name).and_then(Value::as_str);
    if text("use").is_some_and(|usage| usage != "sig") {
        return None;
    }
    let (decoding, own) = match text("kty")? {
        "RSA" => (DecodingKey::from_rsa_components(text("n")?, text("e")?).ok()?, format!("{} {}", text("n")?, text("e")?)),
        "OKP" if text("crv") == Some("Ed25519") => (DecodingKey::from_ed_components(text("x")?).ok()?, text("x")?.to_owned()),
        _ => return None,
    };
    let algorithm = match text("alg") {
        Some(name) => Some(name.parse::<Algorithm>().ok().filter(|algorithm| algorithm.family() == decoding.family())?),
        None => None,
    };
    Some((decoding, Published { kid: text("kid").map(str::to_owned), algorithm, text: own }))
}

fn secret(settings: &TokenSettings) -> Result<Option<Vec<u8>>, KeyError> {
    if let Some(secret) = &settings.secret {
        return Ok(Some(secret.0.clone().into_bytes()));
    }
    let Some(path) = &settings.secret_file else { return Ok(None) };
    let mut bytes = fs::read(path).map_err(|error| KeyError::File { setting: "jwt-secret-file", path: path.clone(), error })?;
    // An editor's line end is not meant.
    while bytes.last().is_some_and(|byte| matches!(byte, b'\r' | b'\n')) {
        bytes.pop();
    }
    Ok(Some(bytes))
}

/// The public key for each family of the configured algorithms.
fn public_keys(text: &str, settings: &TokenSettings) -> Result<Vec<DecodingKey>, KeyError> {
    const BEGIN: &str = "-----BEGIN";
    let pem = if text.contains(BEGIN) {
        // As one line of an environment file writes it.
        text.replace("\\n", "\n").into_bytes()
    } else {
        let path = PathBuf::from(text);
        fs::read(&path).map_err(|error| KeyError::File { setting: "jwt-public-key", path, error })?
    };
    let rsa = DecodingKey::from_rsa_pem(&pem).ok();
    let keys: Vec<_> = rsa.or_else(|| DecodingKey::from_ed_pem(&pem).ok()).into_iter().collect();
    let is_wanted =
        |family: AlgorithmFamily| settings.algorithms.is_empty() || settings.algorithms.iter().any(|one| one.family() == family);
    match keys.first() {
        None => Err(KeyError::NoPublicKey),
        // Where a URL has keys, they may be those of the other family.
        Some(key) if !is_wanted(key.family()) => Err(KeyError::OtherFamily(key.family())),
        Some(key) => match settings.algorithms.iter().find(|one| one.family() != AlgorithmFamily::Hmac && one.family() != key.family()) {
            Some(_) if settings.jwks_url.is_none() => Err(KeyError::OtherFamily(key.family())),
            _ => Ok(keys),
        },
    }
}

/// Why a key of the settings cannot be used.
#[derive(Debug)]
pub enum KeyError {
    /// A file cannot be read.
    File {
        /// The flag that names it.
        setting: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system said.
        error: std::io::Error,
    },
    /// The secret's file holds nothing.
    SecretEmpty,
    /// The text is no public key of RSA or Ed25519 in PEM.
    NoPublicKey,
    /// The public key's family is not that of a configured algorithm.
    OtherFamily(AlgorithmFamily),
}

impl fmt::Display for KeyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File { setting, path, error } => write!(f, "--{setting}: cannot read the file {path:?}: {error}"),
            Self::SecretEmpty => f.write_str("--jwt-secret-file: the file is empty"),
            Self::NoPublicKey => f.write_str("--jwt-public-key: there is no RSA or Ed25519 public key in PEM (-----BEGIN PUBLIC KEY-----)"),
            Self::OtherFamily(family) => {
                let key = if *family == AlgorithmFamily::Rsa { "an RSA" } else { "an Ed25519" };
                write!(f, "--jwt-public-key: it is {key} key, which not every algorithm of --jwt-algorithm can use")
            }
        }
    }
}

impl std::error::Error for KeyError {}
