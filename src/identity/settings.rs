//! What tokens must be like: as typed, and whether it can be met at all.

use std::fmt;
use std::path::PathBuf;
use std::time::Duration;

use jsonwebtoken::{Algorithm, AlgorithmFamily};

/// Every algorithm that can be configured.
pub const ALGORITHMS: [Algorithm; 7] =
    [Algorithm::HS256, Algorithm::HS384, Algorithm::HS512, Algorithm::RS256, Algorithm::RS384, Algorithm::RS512, Algorithm::EdDSA];

/// Text that no log, error or debug form shows.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(pub String);

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a secret")
    }
}

/// The names that the roles claim has for the four roles.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoleNames {
    /// Everything, the node's own routes too.
    pub admin: String,
    /// Everything of a tenant.
    pub read_write: String,
    /// Reading alone.
    pub read_only: String,
    /// Pushing alone.
    pub write_only: String,
}

/// The `--jwt-…` settings.
#[derive(Clone, Debug, PartialEq)]
pub struct TokenSettings {
    /// `--jwt-enabled`.
    pub is_enabled: bool,
    /// `--jwt-algorithm`; none: each that has a key (`auto`).
    pub algorithms: Vec<Algorithm>,
    /// `--jwt-secret`.
    pub secret: Option<Secret>,
    /// `--jwt-secret-file`.
    pub secret_file: Option<PathBuf>,
    /// `--jwt-public-key`: PEM text, or the path of a file that holds it.
    pub public_key: Option<String>,
    /// `--jwt-jwks-url`.
    pub jwks_url: Option<String>,
    /// `--jwt-jwks-refresh-s`.
    pub jwks_refresh: Duration,
    /// `--jwt-issuer`.
    pub issuer: Option<String>,
    /// `--jwt-audience`.
    pub audience: Option<String>,
    /// `--jwt-clock-skew`.
    pub clock_skew: Duration,
    /// `--jwt-skip-paths`.
    pub skip_paths: Vec<String>,
    /// `--jwt-roles-claim`.
    pub roles_claims: Vec<String>,
    /// `--jwt-role-…`.
    pub role_names: RoleNames,
    /// `--jwt-tenant-claim`.
    pub tenant_claim: String,
}

impl Default for TokenSettings {
    fn default() -> Self {
        Self {
            is_enabled: false,
            algorithms: vec![Algorithm::HS256],
            secret: None,
            secret_file: None,
            public_key: None,
            jwks_url: None,
            jwks_refresh: Duration::from_secs(300),
            issuer: None,
            audience: None,
            clock_skew: Duration::from_secs(30),
            skip_paths: Vec::new(),
            roles_claims: vec!["role".to_owned(), "roles".to_owned()],
            role_names: RoleNames {
                admin: "admin".to_owned(),
                read_write: "read-write".to_owned(),
                read_only: "read-only".to_owned(),
                write_only: "write-only".to_owned(),
            },
            tenant_claim: "tenant".to_owned(),
        }
    }
}

impl TokenSettings {
    /// Whether there is a key, or a place to get one, for an algorithm.
    fn has_key(&self, algorithm: Algorithm) -> bool {
        match algorithm.family() {
            AlgorithmFamily::Hmac => self.secret.is_some() || self.secret_file.is_some(),
            _ => self.public_key.is_some() || self.jwks_url.is_some(),
        }
    }

    /// The algorithms that are accepted.
    ///
    /// # Errors
    /// [`Contradiction`]: the settings cannot be met together.
    pub fn accepted(&self) -> Result<Vec<Algorithm>, Contradiction> {
        if self.secret.is_some() && self.secret_file.is_some() {
            return Err(Contradiction::TwoSecrets);
        }
        if self.algorithms.is_empty() {
            let accepted: Vec<_> = ALGORITHMS.into_iter().filter(|algorithm| self.has_key(*algorithm)).collect();
            return if accepted.is_empty() { Err(Contradiction::NoKey(None)) } else { Ok(accepted) };
        }
        match self.algorithms.iter().find(|algorithm| !self.has_key(**algorithm)) {
            Some(algorithm) => Err(Contradiction::NoKey(Some(*algorithm))),
            None => Ok(self.algorithms.clone()),
        }
    }
}

/// Why the settings cannot be met together.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contradiction {
    /// An algorithm has no key; None: no key at all, where the algorithms are those that have one.
    NoKey(Option<Algorithm>),
    /// The secret is given as text and as a file.
    TwoSecrets,
}

impl fmt::Display for Contradiction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (secret, public) = ("JWT_SECRET or --jwt-secret-file", "--jwt-public-key or --jwt-jwks-url");
        match self {
            Self::NoKey(None) => write!(f, "--jwt-enabled: there is no key that a token could be checked with; give {secret}, or {public}"),
            Self::NoKey(Some(algorithm)) => {
                let key = if algorithm.family() == AlgorithmFamily::Hmac { secret } else { public };
                write!(f, "--jwt-algorithm: {algorithm:?} needs a key; give {key}, or another algorithm")
            }
            Self::TwoSecrets => {
                f.write_str("--jwt-secret-file: the secret is given as text too; give one of JWT_SECRET and --jwt-secret-file")
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn settings(algorithms: &[Algorithm]) -> TokenSettings {
        TokenSettings { algorithms: algorithms.to_vec(), ..TokenSettings::default() }
    }

    #[test]
    fn each_algorithm_needs_a_key_of_its_family() {
        let with_secret = |algorithms| TokenSettings { secret: Some(Secret("s".to_owned())), ..settings(algorithms) };
        let with_url = |algorithms| TokenSettings { jwks_url: Some("http://h/".to_owned()), ..settings(algorithms) };
        assert_eq!(with_secret(&[Algorithm::HS384]).accepted(), Ok(vec![Algorithm::HS384]));
        assert_eq!(with_url(&[Algorithm::HS384]).accepted(), Err(Contradiction::NoKey(Some(Algorithm::HS384))));
        assert_eq!(with_secret(&[Algorithm::HS256, Algorithm::EdDSA]).accepted(), Err(Contradiction::NoKey(Some(Algorithm::EdDSA))));
        assert_eq!(with_secret(&[]).accepted().map(|accepted| accepted.len()), Ok(3));
        assert_eq!(with_url(&[]).accepted().map(|accepted| accepted.contains(&Algorithm::HS256)), Ok(false));
        assert_eq!(settings(&[]).accepted(), Err(Contradiction::NoKey(None)));
    }

    #[test]
    fn a_secret_is_not_shown() {
        let settings = TokenSettings { secret: Some(Secret("hush".to_owned())), ..TokenSettings::default() };
        assert!(!format!("{settings:?}").contains("hush"));
    }
}
