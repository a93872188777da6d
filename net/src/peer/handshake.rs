//! How two nodes prove to each other that they belong to one cluster: bytes in, bytes out. Pure; the nonces come from the caller.
//!
//! ```text
//! dialler → accepter  Hello      version, cluster, own id, id wanted, own incarnation, purpose, nonce
//! accepter → dialler  Challenge  own id, own incarnation, nonce                                        or Refusal
//! dialler → accepter  Proof      HMAC-SHA-256(secret, "mayfly peer dialler"  ‖ Hello ‖ Challenge)
//! accepter → dialler  Proof      HMAC-SHA-256(secret, "mayfly peer accepter" ‖ Hello ‖ Challenge)      or Refusal
//! ```
//!
//! Invariants: the dialler proves first, so that who only knocks learns nothing that the secret went into; each proof is over both nonces
//! and carries its role, so that none is worth anything on another connection or in the other direction; a party that has not proved
//! itself is told what stands above and nothing else; its input is bounded by [`INPUT_BYTES_MAX`], and exactly the bytes of the handshake
//! are taken, so that what follows is the link's. After an error nothing more is taken.
//!
//! A message is its kind (u8), the length of its body (u16) and the body; numbers are little-endian. Kinds, lengths, the beginning of
//! Hello up to the version and Refusal stay as they are in every version.

mod wire;

use std::sync::Arc;

use aws_lc_rs::hmac;

use wire::{HEAD_BYTES, Message};

/// The version of the peer protocol: of the handshake and of all that is said on links.
pub const VERSION: u16 = 1;
/// Longest name of a cluster.
pub const CLUSTER_BYTES_MAX: usize = 64;
/// Shortest secret.
pub const SECRET_BYTES_MIN: usize = 16;
/// Bytes of a nonce.
pub const NONCE_BYTES: usize = 32;
/// Most bytes that a handshake takes from the other side.
pub const INPUT_BYTES_MAX: usize = 2 * (HEAD_BYTES + wire::BODY_BYTES_MAX);

const DIALLER: &[u8] = b"mayfly peer dialler";
const ACCEPTER: &[u8] = b"mayfly peer accepter";

/// What a node says of itself, and the secret that it shares with the others.
pub struct Credentials {
    cluster: String,
    key: hmac::Key,
    node: u64,
    incarnation: u64,
    core_count: u16,
}

/// Why there are no credentials of these parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unusable {
    /// The secret is shorter than [`SECRET_BYTES_MIN`].
    SecretTooShort,
    /// The cluster's name is longer than [`CLUSTER_BYTES_MAX`].
    ClusterTooLong,
    /// Node ids begin with 1.
    NodeIsZero,
}

impl std::fmt::Display for Unusable {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::SecretTooShort => write!(f, "the cluster's secret has less than {SECRET_BYTES_MIN} bytes"),
            Self::ClusterTooLong => write!(f, "the cluster's name has more than {CLUSTER_BYTES_MAX} bytes"),
            Self::NodeIsZero => write!(f, "a node's id is 1 or more"),
        }
    }
}

impl std::error::Error for Unusable {}

impl Credentials {
    /// `core_count`: links can be wanted for a core below it.
    ///
    /// # Errors
    /// See [`Unusable`].
    pub fn new(cluster: &str, secret: &[u8], node: u64, incarnation: u64, core_count: u16) -> Result<Self, Unusable> {
        if secret.len() < SECRET_BYTES_MIN {
            return Err(Unusable::SecretTooShort);
        }
        if cluster.len() > CLUSTER_BYTES_MAX {
            return Err(Unusable::ClusterTooLong);
        }
        if node == 0 {
            return Err(Unusable::NodeIsZero);
        }
        Ok(Self { cluster: cluster.to_owned(), key: hmac::Key::new(hmac::HMAC_SHA256, secret), node, incarnation, core_count })
    }

    /// This node's id.
    #[must_use]
    pub fn node(&self) -> u64 {
        self.node
    }
}

impl std::fmt::Debug for Credentials {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut shown = f.debug_struct("Credentials");
        shown.field("cluster", &self.cluster).field("node", &self.node).field("incarnation", &self.incarnation).finish_non_exhaustive()
    }
}

/// What a link is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Purpose {
    /// Messages between the control cores.
    Control,
    /// Requests for this core of the accepter.
    Core(u16),
}

/// Who is at the other end, proved.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// Its id.
    pub node: u64,
    /// Of its start.
    pub incarnation: u64,
    /// What the dialler wants the link for.
    pub purpose: Purpose,
}

/// Why there is no link: one line for each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// What came is no handshake, or not the next part of one.
    Garbled,
    /// The other side speaks another version of the peer protocol.
    OtherVersion {
        /// The other side's.
        theirs: u16,
    },
    /// The other side belongs to a cluster of another name.
    OtherCluster,
    /// The address leads to another node than the one that was wanted.
    OtherNode {
        /// The id that the dialler wanted.
        wanted: u64,
        /// The accepter's.
        found: u64,
    },
    /// The two sides do not have the same secret.
    OtherSecret,
    /// The address is the dialler's own.
    Itself,
    /// Another process runs with the same id.
    SameNode {
        /// The id of both.
        node: u64,
    },
    /// The accepter has no such core.
    NoSuchCore {
        /// The core that was wanted.
        core: u16,
    },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Garbled => write!(f, "what came is no handshake of the peer protocol"),
            Self::OtherVersion { theirs } => write!(f, "the other side speaks version {theirs} of the peer protocol, this node {VERSION}"),
            Self::OtherCluster => write!(f, "the other side belongs to another cluster"),
            Self::OtherNode { wanted, found } => write!(f, "the address of node {wanted} leads to node {found}"),
            Self::OtherSecret => write!(f, "the two nodes do not have the same cluster secret"),
            Self::Itself => write!(f, "the address leads back to this node"),
            Self::SameNode { node } => write!(f, "another process runs as node {node}"),
            Self::NoSuchCore { core } => write!(f, "the node has no core {core}"),
        }
    }
}

impl std::error::Error for Refused {}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Stage {
    Hello,
    Challenge,
    DiallersProof,
    AcceptersProof,
    /// Through, or failed.
    Over,
}

/// One side of one handshake. See the module.
#[derive(Debug)]
pub struct Handshake {
    own: Arc<Credentials>,
    nonce: [u8; NONCE_BYTES],
    stage: Stage,
    /// The id that the dialler wants; the accepter's own.
    wanted: u64,
    /// The message that has not come whole.
    input: Vec<u8>,
    /// Hello and Challenge as they were sent.
    transcript: Vec<u8>,
    peer: Peer,
}

impl Handshake {
    /// The dialler's side, wanting `wanted`; its Hello is appended to `out`. The nonce must be random, and never used before.
    #[must_use]
    pub fn dial(own: Arc<Credentials>, wanted: u64, purpose: Purpose, nonce: [u8; NONCE_BYTES], out: &mut Vec<u8>) -> Self {
        let hello = wire::Hello {
            version: VERSION,
            cluster: own.cluster.clone(),
            node: own.node,
            wanted,
            incarnation: own.incarnation,
            purpose,
            nonce,
        };
        let mut transcript = Vec::new();
        Message::Hello(hello).write(&mut transcript);
        out.extend_from_slice(&transcript);
        let peer = Peer { node: wanted, incarnation: 0, purpose };
        Self { own, nonce, stage: Stage::Challenge, wanted, input: Vec::new(), transcript, peer }
    }

    /// The accepter's side. The nonce must be random, and never used before.
    #[must_use]
    pub fn accept(own: Arc<Credentials>, nonce: [u8; NONCE_BYTES]) -> Self {
        let (wanted, peer) = (own.node, Peer { node: 0, incarnation: 0, purpose: Purpose::Control });
        Self { own, nonce, stage: Stage::Hello, wanted, input: Vec::new(), transcript: Vec::new(), peer }
    }

    /// How many bytes the next read may take: fewer than that are fine, more would be the link's. 0: the handshake is over.
    #[must_use]
    pub fn wanted_bytes(&self) -> usize {
        match self.stage {
            Stage::Over => 0,
            _ => wire::message_bytes(&self.input).unwrap_or(HEAD_BYTES) - self.input.len(),
        }
    }

    /// Takes bytes of the other side and moves `input` past them; appends to `out` what is to be sent, on an error too. The peer, when the
    /// handshake is through: the accepter's last message is then in `out`.
    ///
    /// # Errors
    /// There is no link. What is in `out` tells the other side why; then the socket is to be closed.
    pub fn receive(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Peer>, Refused> {
        let step = self.take(input, out);
        if !matches!(step, Ok(None)) {
            self.stage = Stage::Over;
            self.input = Vec::new();
        }
        step
    }

    fn take(&mut self, input: &mut &[u8], out: &mut Vec<u8>) -> Result<Option<Peer>, Refused> {
        while self.stage != Stage::Over && !input.is_empty() {
            let (taken, rest) = input.split_at(self.wanted_bytes().min(input.len()));
            self.input.extend_from_slice(taken);
            *input = rest;
            wire::check_head(&self.input)?;
            if wire::message_bytes(&self.input) == Some(self.input.len()) {
                let bytes = std::mem::take(&mut self.input);
                if let Some(peer) = self.heard(&bytes, out)? {
                    return Ok(Some(peer));
                }
            }
        }
        Ok(None)
    }

    /// A whole message came.
    fn heard(&mut self, bytes: &[u8], out: &mut Vec<u8>) -> Result<Option<Peer>, Refused> {
        match (self.stage, Message::read(bytes)?) {
            (Stage::Hello, Message::Hello(hello)) => self.heard_hello(&hello, bytes, out).map(|()| None),
            (Stage::Challenge, Message::Challenge(challenge)) => self.heard_challenge(&challenge, bytes, out).map(|()| None),
            (Stage::DiallersProof, Message::Proof(proof)) => self.heard_diallers_proof(&proof, out).map(Some),
            (Stage::AcceptersProof, Message::Proof(proof)) => match self.is_proved(ACCEPTER, &proof) {
                true => Ok(Some(self.peer)),
                false => Err(Refused::OtherSecret),
            },
            // The accepter's word, not proved: it can only end what the dialler wanted to begin.
            (Stage::Challenge | Stage::AcceptersProof, Message::Refusal(refused)) => Err(refused),
            _ => Err(Refused::Garbled),
        }
    }

    fn heard_hello(&mut self, hello: &wire::Hello, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        let own = &self.own;
        let refused = if hello.version != VERSION {
            Some(Refused::OtherVersion { theirs: hello.version })
        } else if hello.cluster != own.cluster {
            Some(Refused::OtherCluster)
        } else if hello.node == own.node && hello.incarnation == own.incarnation {
            Some(Refused::Itself)
        } else if hello.node == own.node {
            Some(Refused::SameNode { node: own.node })
        } else if hello.wanted != own.node {
            Some(Refused::OtherNode { wanted: hello.wanted, found: own.node })
        } else {
            None
        };
        if let Some(refused) = refused {
            return refuse(refused, out);
        }
        self.peer = Peer { node: hello.node, incarnation: hello.incarnation, purpose: hello.purpose };
        self.transcript.extend_from_slice(bytes);
        let begins_at = out.len();
        Message::Challenge(wire::Challenge { node: own.node, incarnation: own.incarnation, nonce: self.nonce }).write(out);
        self.transcript.extend_from_slice(&out[begins_at..]);
        self.stage = Stage::DiallersProof;
        Ok(())
    }

    fn heard_challenge(&mut self, challenge: &wire::Challenge, bytes: &[u8], out: &mut Vec<u8>) -> Result<(), Refused> {
        if challenge.node != self.wanted {
            return Err(Refused::OtherNode { wanted: self.wanted, found: challenge.node });
        }
        if challenge.node == self.own.node {
            return Err(Refused::Itself);
        }
        self.peer.incarnation = challenge.incarnation;
        self.transcript.extend_from_slice(bytes);
        Message::Proof(self.prove(DIALLER)).write(out);
        self.stage = Stage::AcceptersProof;
        Ok(())
    }

    fn heard_diallers_proof(&self, proof: &[u8; wire::PROOF_BYTES], out: &mut Vec<u8>) -> Result<Peer, Refused> {
        if !self.is_proved(DIALLER, proof) {
            return refuse(Refused::OtherSecret, out);
        }
        if let Purpose::Core(core) = self.peer.purpose
            && core >= self.own.core_count
        {
            return refuse(Refused::NoSuchCore { core }, out);
        }
        Message::Proof(self.prove(ACCEPTER)).write(out);
        Ok(self.peer)
    }

    fn prove(&self, role: &[u8]) -> [u8; wire::PROOF_BYTES] {
        let mut context = hmac::Context::with_key(&self.own.key);
        context.update(role);
        context.update(&self.transcript);
        let mut proof = [0; wire::PROOF_BYTES];
        proof.copy_from_slice(context.sign().as_ref());
        proof
    }

    /// Compares in constant time.
    fn is_proved(&self, role: &[u8], proof: &[u8; wire::PROOF_BYTES]) -> bool {
        hmac::verify(&self.own.key, &[role, &self.transcript].concat(), proof).is_ok()
    }
}

fn refuse<T>(refused: Refused, out: &mut Vec<u8>) -> Result<T, Refused> {
    Message::Refusal(refused.clone()).write(out);
    Err(refused)
}
