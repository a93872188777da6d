//! Handshakes between two sides whose bytes are moved, cut, kept, turned round and changed by hand.

use std::sync::Arc;

use proptest::prelude::*;

use super::super::handshake::{Credentials, Handshake, INPUT_BYTES_MAX, NONCE_BYTES, Peer, Purpose, Refused, Unusable, VERSION};

const SECRET: &[u8] = b"a secret of the cluster";

fn node(id: u64) -> Arc<Credentials> {
    credentials("c", SECRET, id, id * 100)
}

fn credentials(cluster: &str, secret: &[u8], id: u64, incarnation: u64) -> Arc<Credentials> {
    Arc::new(Credentials::new(cluster, secret, id, incarnation, 4).expect("usable"))
}

fn nonce(seed: u8) -> [u8; NONCE_BYTES] {
    [seed; NONCE_BYTES]
}

/// One side and what it has to say.
struct Side {
    handshake: Handshake,
    out: Vec<u8>,
    result: Option<Result<Peer, Refused>>,
}

impl Side {
    fn dialler(own: &Arc<Credentials>, wanted: u64, purpose: Purpose, seed: u8) -> Self {
        let mut out = Vec::new();
        let handshake = Handshake::dial(Arc::clone(own), wanted, purpose, nonce(seed), &mut out);
        Self { handshake, out, result: None }
    }

    fn accepter(own: &Arc<Credentials>, seed: u8) -> Self {
        Self { handshake: Handshake::accept(Arc::clone(own), nonce(seed)), out: Vec::new(), result: None }
    }

    /// Gives bytes in pieces; what was not taken.
    fn give<'a>(&mut self, bytes: &'a [u8], piece: usize) -> &'a [u8] {
        let mut rest = bytes;
        while !rest.is_empty() && self.result.is_none() {
            let mut input = &rest[..piece.clamp(1, rest.len())];
            let given = input.len();
            match self.handshake.receive(&mut input, &mut self.out) {
                Ok(None) => assert!(input.is_empty()),
                Ok(Some(peer)) => self.result = Some(Ok(peer)),
                Err(refused) => self.result = Some(Err(refused)),
            }
            rest = &rest[given - input.len()..];
        }
        rest
    }

    fn take(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.out)
    }
}

/// Moves bytes until neither has any left: what both came to, and everything that each said.
fn meet(dialler: &mut Side, accepter: &mut Side, piece: usize) -> (Vec<u8>, Vec<u8>) {
    let (mut there, mut back) = (Vec::new(), Vec::new());
    loop {
        let (said, answered) = (dialler.take(), accepter.take());
        if said.is_empty() && answered.is_empty() {
            return (there, back);
        }
        accepter.give(&said, piece);
        dialler.give(&answered, piece);
        there.extend(said);
        back.extend(answered);
    }
}

fn outcome(own: &Arc<Credentials>, wanted: u64, purpose: Purpose, other: &Arc<Credentials>) -> (Side, Side) {
    let (mut dialler, mut accepter) = (Side::dialler(own, wanted, purpose, 1), Side::accepter(other, 2));
    meet(&mut dialler, &mut accepter, usize::MAX);
    (dialler, accepter)
}

#[test]
fn both_sides_learn_who_the_other_is_however_the_bytes_are_cut() {
    for piece in [1, 2, 3, 7, 64, usize::MAX] {
        for purpose in [Purpose::Control, Purpose::Core(0), Purpose::Core(3)] {
            let (mut dialler, mut accepter) = (Side::dialler(&node(1), 2, purpose, 1), Side::accepter(&node(2), 2));
            let (there, back) = meet(&mut dialler, &mut accepter, piece);
            assert_eq!(dialler.result, Some(Ok(Peer { node: 2, incarnation: 200, purpose })));
            assert_eq!(accepter.result, Some(Ok(Peer { node: 1, incarnation: 100, purpose })));
            assert!(there.len() <= INPUT_BYTES_MAX && back.len() <= INPUT_BYTES_MAX && INPUT_BYTES_MAX <= 1024);
            assert_eq!((dialler.handshake.wanted_bytes(), accepter.handshake.wanted_bytes()), (0, 0));
            assert!([there, back].iter().all(|said| !said.windows(SECRET.len()).any(|bytes| bytes == SECRET)));
        }
    }
}

#[test]
fn bytes_behind_the_handshake_are_left_to_the_link() {
    let (mut dialler, mut accepter) = (Side::dialler(&node(1), 2, Purpose::Control, 1), Side::accepter(&node(2), 2));
    accepter.give(&dialler.take(), usize::MAX);
    dialler.give(&accepter.take(), usize::MAX);
    accepter.give(&dialler.take(), usize::MAX);
    let mut last = accepter.take();
    last.extend_from_slice(b"frame");
    assert_eq!(dialler.give(&last, usize::MAX), b"frame");
    assert!(matches!(dialler.result, Some(Ok(_))));
}

#[test]
fn each_mismatch_has_its_own_error_on_both_sides() {
    let purpose = Purpose::Control;
    let (dialler, accepter) = outcome(&node(1), 3, purpose, &node(2));
    let refused = Some(Err(Refused::OtherNode { wanted: 3, found: 2 }));
    assert_eq!((dialler.result, accepter.result), (refused.clone(), refused));

    let (dialler, accepter) = outcome(&node(1), 2, purpose, &credentials("c", b"another secret than that", 2, 200));
    assert_eq!((dialler.result, accepter.result), (Some(Err(Refused::OtherSecret)), Some(Err(Refused::OtherSecret))));

    let (dialler, accepter) = outcome(&node(1), 2, purpose, &credentials("d", SECRET, 2, 200));
    assert_eq!((dialler.result, accepter.result), (Some(Err(Refused::OtherCluster)), Some(Err(Refused::OtherCluster))));

    let (dialler, accepter) = outcome(&node(1), 2, purpose, &node(1));
    assert_eq!((dialler.result, accepter.result), (Some(Err(Refused::Itself)), Some(Err(Refused::Itself))));

    let (dialler, accepter) = outcome(&node(1), 2, purpose, &credentials("c", SECRET, 1, 7));
    let refused = Some(Err(Refused::SameNode { node: 1 }));
    assert_eq!((dialler.result, accepter.result), (refused.clone(), refused));

    let (dialler, accepter) = outcome(&node(1), 2, Purpose::Core(4), &node(2));
    let refused = Some(Err(Refused::NoSuchCore { core: 4 }));
    assert_eq!((dialler.result, accepter.result), (refused.clone(), refused));
}

#[test]
fn another_version_is_told_whatever_else_it_says() {
    let mut dialler = Side::dialler(&node(1), 2, Purpose::Control, 1);
    let mut hello = dialler.take();
    hello[11..13].copy_from_slice(&(VERSION + 1).to_le_bytes());
    hello.extend_from_slice(b"more");
    hello[1] += 4;
    let mut accepter = Side::accepter(&node(2), 2);
    assert!(accepter.give(&hello, usize::MAX).is_empty());
    assert_eq!(accepter.result, Some(Err(Refused::OtherVersion { theirs: VERSION + 1 })));
    dialler.give(&accepter.take(), usize::MAX);
    assert_eq!(dialler.result, Some(Err(Refused::OtherVersion { theirs: VERSION })));
}

#[test]
fn a_replayed_dialler_is_refused() {
    let (mut dialler, mut accepter) = (Side::dialler(&node(1), 2, Purpose::Control, 1), Side::accepter(&node(2), 2));
    let (there, back) = meet(&mut dialler, &mut accepter, usize::MAX);
    assert!(matches!(accepter.result, Some(Ok(_))));
    // The same bytes at the next connection, whose nonce is another; with the same nonce it would be taken: the nonce is what counts.
    let mut again = Side::accepter(&node(2), 3);
    again.give(&there, usize::MAX);
    assert_eq!(again.result, Some(Err(Refused::OtherSecret)));
    let mut same = Side::accepter(&node(2), 2);
    same.give(&there, usize::MAX);
    assert!(matches!(same.result, Some(Ok(_))));
    // The accepter's side played to a new dialler.
    let mut again = Side::dialler(&node(1), 2, Purpose::Control, 4);
    again.give(&back, usize::MAX);
    assert_eq!(again.result, Some(Err(Refused::OtherSecret)));
}

#[test]
fn what_a_side_says_is_not_taken_back_from_itself() {
    // A dialler that is shown its own bytes.
    let mut dialler = Side::dialler(&node(1), 2, Purpose::Control, 1);
    let hello = dialler.take();
    dialler.give(&hello, usize::MAX);
    assert_eq!(dialler.result, Some(Err(Refused::Garbled)));
    // Its proof given back as the accepter's.
    let (mut dialler, mut accepter) = (Side::dialler(&node(1), 2, Purpose::Control, 1), Side::accepter(&node(2), 2));
    accepter.give(&dialler.take(), usize::MAX);
    dialler.give(&accepter.take(), usize::MAX);
    let proof = dialler.take();
    dialler.give(&proof, usize::MAX);
    assert_eq!(dialler.result, Some(Err(Refused::OtherSecret)));
}

/// Without the secret, in the middle of two nodes at once: a challenge of one cannot be answered by the other for a third.
#[test]
fn a_node_cannot_be_made_to_prove_for_somebody_else() {
    // Node 1 dials node 3, which is the attacker, who turns to node 2 as if it were node 1 wanting node 2.
    let mut victim = Side::dialler(&node(1), 3, Purpose::Control, 1);
    victim.take();
    let mut forged = Side::dialler(&credentials("c", b"not the cluster's secret", 1, 100), 2, Purpose::Control, 1);
    let mut target = Side::accepter(&node(2), 2);
    target.give(&forged.take(), usize::MAX);
    let challenge = target.take();
    // The target's challenge names the target: the victim, who wants node 3, does not answer it.
    victim.give(&challenge, usize::MAX);
    assert_eq!(victim.result, Some(Err(Refused::OtherNode { wanted: 3, found: 2 })));
    // Renamed, it is another transcript: the proof is worth nothing to the target.
    let mut victim = Side::dialler(&node(1), 3, Purpose::Control, 1);
    victim.take();
    let mut renamed = challenge;
    renamed[3] = 3;
    victim.give(&renamed, usize::MAX);
    target.give(&victim.take(), usize::MAX);
    assert_eq!(target.result, Some(Err(Refused::OtherSecret)));
}

#[test]
fn nothing_that_the_secret_went_into_is_told_to_who_only_knocks() {
    let knock = |secret: &[u8]| {
        let mut accepter = Side::accepter(&credentials("c", secret, 2, 200), 2);
        accepter.give(&Side::dialler(&node(1), 2, Purpose::Control, 1).take(), usize::MAX);
        let mut said = accepter.take();
        accepter.give(&[&[3, 32, 0][..], &[0; 32]].concat(), usize::MAX);
        assert_eq!(accepter.result, Some(Err(Refused::OtherSecret)));
        said.extend(accepter.take());
        said
    };
    assert_eq!(knock(SECRET), knock(b"another secret than that"));
}

#[test]
fn garbage_is_refused_at_its_first_bytes_and_told_nothing() {
    for garbage in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[0; 2000], &[1, 255, 255], &[2, 48, 0], &[22, 3, 1], &[1, 0, 0]] {
        let mut accepter = Side::accepter(&node(2), 2);
        let bytes = [garbage, &[0; 100]].concat();
        let rest = accepter.give(&bytes, 1);
        assert_eq!(accepter.result, Some(Err(Refused::Garbled)), "{garbage:?}");
        assert!(bytes.len() - rest.len() <= 3 + 48);
        assert!(accepter.out.is_empty());
        // And nothing more is taken.
        assert_eq!(accepter.handshake.wanted_bytes(), 0);
    }
}

#[test]
fn credentials_have_bounds() {
    let made = |cluster: &str, secret: &[u8], node| Credentials::new(cluster, secret, node, 0, 1).map(|_| ());
    assert_eq!(made("", &[1; 16], 1), Ok(()));
    assert_eq!(made("", &[1; 15], 1), Err(Unusable::SecretTooShort));
    assert_eq!(made(&"c".repeat(64), &[1; 16], 1), Ok(()));
    assert_eq!(made(&"c".repeat(65), &[1; 16], 1), Err(Unusable::ClusterTooLong));
    assert_eq!(made("", &[1; 16], 0), Err(Unusable::NodeIsZero));
    assert!(!format!("{:?}", node(1)).contains("secret"));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(400) })]

    /// One bit of what either side says, changed on its way: never do both believe that they are through, and never one who heard it.
    #[test]
    fn any_changed_bit_is_noticed(at in any::<prop::sample::Index>(), bit in 0..8_u8, there in any::<bool>()) {
        let (mut dialler, mut accepter) = (Side::dialler(&node(1), 2, Purpose::Core(1), 1), Side::accepter(&node(2), 2));
        let whole = meet(&mut Side::dialler(&node(1), 2, Purpose::Core(1), 1), &mut Side::accepter(&node(2), 2), usize::MAX);
        let at = at.index(if there { whole.0.len() } else { whole.1.len() });
        let (mut said_bytes, mut answered_bytes) = (0, 0);
        loop {
            let (mut said, mut answered) = (dialler.take(), accepter.take());
            if said.is_empty() && answered.is_empty() {
                break;
            }
            let (bytes, before) = if there { (&mut said, said_bytes) } else { (&mut answered, answered_bytes) };
            if (before..before + bytes.len()).contains(&at) {
                bytes[at - before] ^= 1 << bit;
            }
            (said_bytes, answered_bytes) = (said_bytes + said.len(), answered_bytes + answered.len());
            accepter.give(&said, usize::MAX);
            dialler.give(&answered, usize::MAX);
        }
        prop_assert!(!matches!(dialler.result, Some(Ok(_))), "{:?}", dialler.result);
        if there {
            prop_assert!(!matches!(accepter.result, Some(Ok(_))), "{:?}", accepter.result);
        }
    }

    #[test]
    fn no_bytes_panic_or_are_taken_for_a_proof(bytes in prop::collection::vec(any::<u8>(), 0..1200), kind in 0..6_u8, piece in 1..300_usize) {
        let mut bytes = bytes;
        bytes.splice(0..0, [kind]);
        for mut side in [Side::accepter(&node(2), 2), Side::dialler(&node(1), 2, Purpose::Control, 1)] {
            side.give(&bytes, piece);
            prop_assert!(!matches!(side.result, Some(Ok(_))));
        }
    }
}
