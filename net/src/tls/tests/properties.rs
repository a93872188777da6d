//! Whatever the pieces: all that was said is heard, once and in order; what a socket took is told from what it did not.

use std::sync::OnceLock;

use proptest::prelude::*;
use rustls::SupportedProtocolVersion;
use rustls::pki_types::CertificateDer;
use rustls::version::{TLS12, TLS13};

use super::super::{Acceptor, Seal, Step};
use super::support::{Pair, Wire, certificate, trusting};

fn wire(version: &'static SupportedProtocolVersion) -> Wire {
    // Not the pair itself: nothing that is static is dropped, and its folder would stay.
    static SERVED: OnceLock<(CertificateDer<'static>, Acceptor)> = OnceLock::new();
    let (certificate, acceptor) = SERVED.get_or_init(|| {
        let files = Pair::made(|_| ());
        (certificate(&files.files()), Acceptor::load(&files.files()).expect("served"))
    });
    Wire::new(acceptor, &trusting(certificate.clone(), &[version], &["http/1.1"]))
}

fn version() -> impl Strategy<Value = &'static SupportedProtocolVersion> {
    prop_oneof![Just(&TLS12), Just(&TLS13)]
}

/// From one byte at a time to all at once.
fn piece() -> impl Strategy<Value = usize> {
    prop_oneof![Just(1_usize), 2_usize..64, 64_usize..20_000, Just(usize::MAX)]
}

fn said() -> impl Strategy<Value = Vec<Vec<u8>>> {
    let bytes = prop_oneof![proptest::collection::vec(any::<u8>(), 1..200), (1_usize..40_000, any::<u8>()).prop_map(|(n, b)| vec![b; n])];
    proptest::collection::vec(bytes, 0..6)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn both_hear_what_the_other_said(version in version(), pieces in (piece(), piece()), there in said(), back in said(), renewed in any::<bool>()) {
        let mut wire = wire(version);
        wire.settle(pieces);
        prop_assert_eq!(&wire.client_error, &None);
        prop_assert_eq!(&wire.steps, &[Step { is_secured: true, ..Step::default() }]);
        for bytes in &there {
            wire.say(bytes);
            if renewed && version == &TLS13 {
                wire.client.refresh_traffic_keys().expect("new keys");
            }
            let bytes = wire.take_client();
            wire.give_server(&bytes, pieces.0);
        }
        for bytes in &back {
            wire.seal.put(bytes.clone());
            let bytes = wire.take_server();
            wire.give_client(&bytes, pieces.1);
        }
        wire.client.send_close_notify();
        wire.settle(pieces);
        prop_assert_eq!(&wire.client_error, &None);
        prop_assert_eq!(&wire.heard, &there.concat());
        prop_assert_eq!(&wire.read, &back.concat());
        prop_assert_eq!(wire.steps.len(), 2);
        prop_assert!(wire.steps[1].is_finished);
        prop_assert_eq!(wire.seal.session.held_bytes(), 0);
    }

    /// The client reads exactly what counts as taken, and of what does not count as begun nothing went out.
    #[test]
    fn what_the_socket_took_is_what_the_client_can_read(version in version(), answers in said(), cut in any::<prop::sample::Index>(), step in 1_usize..70_000) {
        let mut wire = wire(version);
        wire.settle((usize::MAX, usize::MAX));
        let plain = answers.concat();
        let whole_bytes = { let mut all = Vec::new(); fill_all(&mut wire.seal, plain.clone(), |send, _| all.extend_from_slice(send)); all.len() };
        let mut wire = self::wire(version);
        wire.settle((usize::MAX, usize::MAX));
        let cut = cut.index(whole_bytes + 1);
        let (mut gone, mut sent, mut begun) = (Vec::new(), 0, 0);
        fill_all(&mut wire.seal, plain.clone(), |send, seal| {
            let mut taken = 0;
            while taken < send.len() && gone.len() < cut {
                let count = step.min(send.len() - taken).min(cut - gone.len());
                gone.extend_from_slice(&send[taken..taken + count]);
                taken += count;
                sent += seal.take(taken);
                begun = sent + seal.begun_bytes();
            }
        });
        prop_assert_eq!(gone.len(), cut);
        wire.give_client(&gone, usize::MAX);
        prop_assert_eq!(&wire.read, &plain[..sent]);
        prop_assert!(begun <= plain.len() && begun - sent <= 16 << 10);
        prop_assert_eq!(sent == plain.len(), cut == whole_bytes);
        // Each record has 22 bytes of its own at least, so a cut in it shows.
        prop_assert_eq!(begun == sent, is_boundary(&gone), "{} sent, {} begun", sent, begun);
    }

    /// Any bytes: no panic, no plain bytes, and a failure that says so to the peer or waits for more.
    #[test]
    fn garbage_is_refused(bytes in proptest::collection::vec(any::<u8>(), 1..2_000), piece in piece()) {
        let mut wire = wire(&TLS13);
        wire.give_server(&bytes, piece);
        prop_assert!(wire.heard.is_empty());
        let failed = Step { is_failed: true, ..Step::default() };
        prop_assert!(wire.steps.iter().all(|step| *step == failed));
        prop_assert!(wire.seal.session.is_failed() || wire.seal.session.held_bytes() > 0);
        if wire.seal.session.is_failed() {
            wire.give_server(&bytes, piece);
            prop_assert_eq!(wire.steps.len(), 1);
        }
    }

    /// One bit of a record changed: nothing of it is heard.
    #[test]
    fn a_changed_record_is_refused(version in version(), at in any::<prop::sample::Index>(), bit in 0_u8..8, piece in piece()) {
        let mut wire = wire(version);
        wire.settle((usize::MAX, usize::MAX));
        wire.say(b"a request");
        let mut bytes = wire.take_client();
        // Bytes 1 and 2 are a version that nobody looks at; a changed length waits for the rest.
        let at = 5 + at.index(bytes.len() - 5);
        bytes[at] ^= 1 << bit;
        wire.give_server(&bytes, piece);
        prop_assert!(wire.heard.is_empty() && wire.seal.session.is_failed());
        let alert = wire.take_server();
        wire.give_client(&alert, usize::MAX);
        let is_alert = matches!(&wire.client_error, Some(rustls::Error::AlertReceived(rustls::AlertDescription::BadRecordMac)));
        prop_assert!(is_alert, "{:?}", wire.client_error);
    }
}

/// Sends `plain` to its end.
fn fill_all(seal: &mut Seal, plain: Vec<u8>, mut sent: impl FnMut(&[u8], &mut Seal)) {
    seal.put(plain);
    while seal.has_output() {
        let mut send = Vec::new();
        seal.fill(&mut send);
        sent(&send, seal);
    }
}

/// Whether bytes end with a whole record.
fn is_boundary(mut bytes: &[u8]) -> bool {
    while let [_, _, _, high, low, rest @ ..] = bytes {
        match rest.get(usize::from(u16::from_be_bytes([*high, *low]))..) {
            Some(behind) => bytes = behind,
            None => return false,
        }
    }
    bytes.is_empty()
}
