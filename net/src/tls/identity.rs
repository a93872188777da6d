//! A certificate chain and its key, out of two PEM files, with everything said about them that would keep clients away.

use std::fmt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use x509_cert::Certificate;
use x509_cert::der::Decode;

/// Where chain and key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Files {
    /// PEM: the node's certificate first, then those that lead to its authority.
    pub cert: PathBuf,
    /// PEM: its key, PKCS#8, PKCS#1 or SEC1, not encrypted.
    pub key: PathBuf,
}

/// Why no client could be served with these files: one line, with the file at fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refused {
    file: PathBuf,
    cause: String,
}

impl Refused {
    pub(super) fn new(file: &Path, cause: impl fmt::Display) -> Self {
        // The cause may be somebody else's words; it stays on the line.
        let cause = cause.to_string().chars().map(|letter| if letter.is_control() { ' ' } else { letter }).collect();
        Self { file: file.to_owned(), cause }
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}: {}", self.file, self.cause)
    }
}

impl std::error::Error for Refused {}

/// Reads both files.
pub(super) fn read(files: &Files) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Refused> {
    let chain = read_chain(&files.cert)?;
    let key = PrivateKeyDer::from_pem_file(&files.key).map_err(|error| {
        let cause = match error {
            pem::Error::NoItemsFound => {
                "no private key in it; a PEM file with a PKCS#8, PKCS#1 or SEC1 key is needed, not encrypted".into()
            }
            other => unreadable(&other),
        };
        Refused::new(&files.key, cause)
    })?;
    Ok((chain, key))
}

fn read_chain(file: &Path) -> Result<Vec<CertificateDer<'static>>, Refused> {
    let certificates = CertificateDer::pem_file_iter(file).and_then(Iterator::collect::<Result<Vec<_>, _>>);
    let chain = certificates.map_err(|error| Refused::new(file, unreadable(&error)))?;
    if chain.is_empty() {
        return Err(Refused::new(file, "no certificate in it; a PEM file with the node's certificate first is needed"));
    }
    Ok(chain)
}

fn unreadable(error: &pem::Error) -> String {
    match error {
        pem::Error::Io(error) => format!("cannot be read: {error}"),
        other => format!("is no PEM file: {other}"),
    }
}

/// Refuses a certificate that is not valid at `now`: clients would.
pub(super) fn check_validity(file: &Path, certificate: &CertificateDer<'_>, now: SystemTime) -> Result<(), Refused> {
    let parsed =
        Certificate::from_der(certificate).map_err(|error| Refused::new(file, format!("its certificate cannot be read: {error}")))?;
    let validity = parsed.tbs_certificate.validity;
    let now = now.duration_since(SystemTime::UNIX_EPOCH).unwrap_or(Duration::ZERO);
    if validity.not_after.to_unix_duration() < now {
        return Err(Refused::new(file, format!("its certificate has expired (valid until {}); renew it", validity.not_after)));
    }
    if validity.not_before.to_unix_duration() > now {
        let since = validity.not_before;
        return Err(Refused::new(file, format!("its certificate is not valid yet (from {since}); check this host's clock")));
    }
    Ok(())
}
