//! PEM files, good and bad: every kind of key is taken, and what would keep clients away is named with its file.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use rcgen::date_time_ymd;
use rustls::ClientConfig;

use super::super::Acceptor;
use super::super::acceptor::configure;
use super::support::{Pair, Wire, client_config, self_signed};

/// Keys in the two older forms, with certificates that sign themselves. Made by `openssl genrsa -traditional` and `openssl ecparam`.
const RSA: (&str, &str) = (include_str!("rsa-pkcs1.cert.pem"), include_str!("rsa-pkcs1.key.pem"));
const EC: (&str, &str) = (include_str!("ec-sec1.cert.pem"), include_str!("ec-sec1.key.pem"));

fn refusal(cert: &str, key: &str) -> String {
    let pair = Pair::of(cert, key);
    let line = Acceptor::load(&pair.files()).expect_err("refused").to_string();
    assert!(!line.contains('\n'), "{line}");
    line
}

#[test]
fn keys_of_every_form_serve_both_versions() {
    assert!(RSA.1.starts_with("-----BEGIN RSA PRIVATE KEY-----") && EC.1.starts_with("-----BEGIN EC PRIVATE KEY-----"));
    let (cert, key) = self_signed(|_| ());
    assert!(key.starts_with("-----BEGIN PRIVATE KEY-----"));
    for (cert, key) in [(&*cert, &*key), RSA, EC] {
        let pair = Pair::of(cert, key);
        let acceptor = Acceptor::load(&pair.files()).expect("served");
        for version in [&rustls::version::TLS12, &rustls::version::TLS13] {
            let mut wire = Wire::new(&acceptor, &client_config(&pair.files(), &[version], &["http/1.1"]));
            wire.settle((usize::MAX, usize::MAX));
            assert_eq!(
                (wire.client.is_handshaking(), wire.client.protocol_version()),
                (false, Some(version.version)),
                "{:?}",
                wire.client_error
            );
        }
    }
}

#[test]
fn what_would_keep_clients_away_is_named() {
    let (cert, key) = self_signed(|_| ());
    let (other_cert, other_key) = self_signed(|_| ());
    for (cert, key, file, cause) in [
        (&*cert, &*other_key, "key.pem", "it is not the key of the certificate in "),
        (&*other_cert, &*key, "key.pem", "it is not the key of the certificate in "),
        (RSA.0, EC.1, "key.pem", "it is not the key of the certificate in "),
        (&*cert, &*cert, "key.pem", "no private key in it"),
        (&*key, &*key, "cert.pem", "no certificate in it"),
        ("", "", "cert.pem", "no certificate in it"),
        ("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n", &*key, "cert.pem", "its certificate cannot be read"),
        ("-----BEGIN CERTIFICATE-----\n?\n-----END CERTIFICATE-----\n", &*key, "cert.pem", "is no PEM file"),
        (&*cert, "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n", "key.pem", "its key cannot be used"),
    ] {
        let line = refusal(cert, key);
        assert!(line.contains(file) && line.contains(cause), "{cause}: {line}");
    }
    // Its folder ends with it.
    let gone = Pair::of(&cert, &key).files();
    assert!(Acceptor::load(&gone).expect_err("no such file").to_string().contains("cannot be read: "));
}

#[test]
fn a_certificate_out_of_its_time_is_refused() {
    let expired = Pair::made(|params| params.not_after = date_time_ymd(2020, 2, 29));
    let line = Acceptor::load(&expired.files()).expect_err("expired").to_string();
    assert!(line.contains("has expired (valid until 2020-02-29"), "{line}");
    let early = Pair::made(|params| params.not_before = date_time_ymd(2999, 1, 1));
    let line = Acceptor::load(&early.files()).expect_err("too early").to_string();
    assert!(line.contains("is not valid yet (from 2999-01-01"), "{line}");
    // The day before it ended it was good.
    let end = SystemTime::UNIX_EPOCH + Duration::from_secs(1_582_934_400);
    assert!(configure(&expired.files(), end - Duration::from_secs(86_400)).is_ok());
}

#[test]
fn a_bad_pair_leaves_what_was_there() {
    let pair = Pair::made(|_| ());
    let acceptor = Acceptor::load(&pair.files()).expect("served");
    let config = client_config(&pair.files(), rustls::ALL_VERSIONS, &[]);
    let serves = |config: &Arc<ClientConfig>| {
        let mut wire = Wire::new(&acceptor, config);
        wire.settle((usize::MAX, usize::MAX));
        wire.client_error.is_none()
    };
    assert!(serves(&config));
    std::fs::write(pair.files().key, self_signed(|_| ()).1).expect("a file");
    acceptor.reload(&pair.files()).expect_err("the key of another");
    assert!(serves(&config));
    let (cert, key) = self_signed(|_| ());
    std::fs::write(pair.files().cert, cert).expect("a file");
    std::fs::write(pair.files().key, key).expect("a file");
    acceptor.reload(&pair.files()).expect("a good pair");
    assert!(serves(&client_config(&pair.files(), rustls::ALL_VERSIONS, &[])));
    // A client that trusts the first only and has no ticket.
    let stranger = Pair::made(|_| ());
    assert!(!serves(&client_config(&stranger.files(), rustls::ALL_VERSIONS, &[])));
}
