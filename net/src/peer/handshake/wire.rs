//! The messages of a handshake as bytes.

use super::{CLUSTER_BYTES_MAX, NONCE_BYTES, Purpose, Refused, VERSION};

/// Kind and length.
pub(super) const HEAD_BYTES: usize = 3;
/// Most bytes of a body: a Hello needs 8 + 2 + 1 + 64 + 3 × 8 + 3 + 32.
pub(super) const BODY_BYTES_MAX: usize = 256;
/// Bytes of an HMAC-SHA-256.
pub(super) const PROOF_BYTES: usize = 32;

const MAGIC: &[u8; 8] = b"mayfly\x01\n";
const HELLO: u8 = 1;
const CHALLENGE: u8 = 2;
const PROOF: u8 = 3;
const REFUSAL: u8 = 4;

const OTHER_VERSION: u8 = 1;
const OTHER_CLUSTER: u8 = 2;
const OTHER_NODE: u8 = 3;
const OTHER_SECRET: u8 = 4;
const ITSELF: u8 = 5;
const SAME_NODE: u8 = 6;
const NO_SUCH_CORE: u8 = 7;

pub(super) struct Hello {
    /// With another version only this is known; the rest is as if empty.
    pub(super) version: u16,
    pub(super) cluster: String,
    pub(super) node: u64,
    pub(super) wanted: u64,
    pub(super) incarnation: u64,
    pub(super) purpose: Purpose,
    pub(super) nonce: [u8; NONCE_BYTES],
}

pub(super) struct Challenge {
    pub(super) node: u64,
    pub(super) incarnation: u64,
    pub(super) nonce: [u8; NONCE_BYTES],
}

pub(super) enum Message {
    Hello(Hello),
    Challenge(Challenge),
    Proof([u8; PROOF_BYTES]),
    Refusal(Refused),
}

/// Bytes of the message that begins with these; `None` when its head is not whole.
pub(super) fn message_bytes(bytes: &[u8]) -> Option<usize> {
    let head = bytes.first_chunk::<HEAD_BYTES>()?;
    Some(HEAD_BYTES + usize::from(u16::from_le_bytes([head[1], head[2]])))
}

/// Refuses as soon as a head shows that no message of ours follows.
pub(super) fn check_head(bytes: &[u8]) -> Result<(), Refused> {
    let is_known = bytes.first().is_none_or(|kind| (HELLO..=REFUSAL).contains(kind));
    let is_short = message_bytes(bytes).is_none_or(|count| count <= HEAD_BYTES + BODY_BYTES_MAX);
    if is_known && is_short { Ok(()) } else { Err(Refused::Garbled) }
}

impl Message {
    pub(super) fn write(&self, out: &mut Vec<u8>) {
        let begins_at = out.len();
        out.extend_from_slice(&[0; HEAD_BYTES]);
        let kind = match self {
            Self::Hello(hello) => hello.write(out),
            Self::Challenge(challenge) => {
                out.extend_from_slice(&challenge.node.to_le_bytes());
                out.extend_from_slice(&challenge.incarnation.to_le_bytes());
                out.extend_from_slice(&challenge.nonce);
                CHALLENGE
            }
            Self::Proof(proof) => {
                out.extend_from_slice(proof);
                PROOF
            }
            Self::Refusal(refused) => write_refusal(refused, out),
        };
        let body_bytes = (out.len() - begins_at - HEAD_BYTES) as u16;
        out[begins_at] = kind;
        out[begins_at + 1..begins_at + HEAD_BYTES].copy_from_slice(&body_bytes.to_le_bytes());
    }

    /// Reads one whole message.
    pub(super) fn read(bytes: &[u8]) -> Result<Self, Refused> {
        let (kind, mut body) = (bytes[0], Body(&bytes[HEAD_BYTES..]));
        let message = match kind {
            HELLO => Hello::read(&mut body).map(Self::Hello),
            CHALLENGE => body.challenge().map(Self::Challenge),
            PROOF => body.array().map(Self::Proof),
            REFUSAL => body.refusal().map(Self::Refusal),
            _ => None,
        };
        // A later version may say more in its Hello and in a Refusal.
        let may_say_more = match &message {
            Some(Self::Hello(hello)) => hello.version != VERSION,
            Some(Self::Refusal(_)) => true,
            _ => false,
        };
        message.filter(|_| may_say_more || body.0.is_empty()).ok_or(Refused::Garbled)
    }
}

impl Hello {
    fn write(&self, out: &mut Vec<u8>) -> u8 {
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&self.version.to_le_bytes());
        out.push(self.cluster.len() as u8);
        out.extend_from_slice(self.cluster.as_bytes());
        for number in [self.node, self.wanted, self.incarnation] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        let (purpose, core) = match self.purpose {
            Purpose::Control => (0, 0),
            Purpose::Core(core) => (1, core),
        };
        out.push(purpose);
        out.extend_from_slice(&core.to_le_bytes());
        out.extend_from_slice(&self.nonce);
        HELLO
    }

    fn read(body: &mut Body<'_>) -> Option<Self> {
        if body.array()? != *MAGIC {
            return None;
        }
        let version = u16::from_le_bytes(body.array()?);
        let mut hello = Self {
            version,
            cluster: String::new(),
            node: 0,
            wanted: 0,
            incarnation: 0,
            purpose: Purpose::Control,
            nonce: [0; NONCE_BYTES],
        };
        if version != VERSION {
            return Some(hello);
        }
        let [cluster_bytes] = body.array()?;
        let cluster = body.bytes(usize::from(cluster_bytes)).filter(|bytes| bytes.len() <= CLUSTER_BYTES_MAX)?;
        hello.cluster = std::str::from_utf8(cluster).ok()?.to_owned();
        hello.node = body.number().filter(|node| *node > 0)?;
        hello.wanted = body.number()?;
        hello.incarnation = body.number()?;
        hello.purpose = body.purpose()?;
        hello.nonce = body.array()?;
        Some(hello)
    }
}

fn write_refusal(refused: &Refused, out: &mut Vec<u8>) -> u8 {
    let (code, first, second) = match refused {
        // Never sent: who sends garbage is told nothing.
        Refused::Garbled => (0, 0, 0),
        Refused::OtherVersion { .. } => (OTHER_VERSION, u64::from(VERSION), 0),
        Refused::OtherCluster => (OTHER_CLUSTER, 0, 0),
        Refused::OtherNode { wanted, found } => (OTHER_NODE, *wanted, *found),
        Refused::OtherSecret => (OTHER_SECRET, 0, 0),
        Refused::Itself => (ITSELF, 0, 0),
        Refused::SameNode { node } => (SAME_NODE, *node, 0),
        Refused::NoSuchCore { core } => (NO_SUCH_CORE, u64::from(*core), 0),
    };
    out.push(code);
    out.extend_from_slice(&first.to_le_bytes());
    out.extend_from_slice(&second.to_le_bytes());
    REFUSAL
}

/// What of a body is not read yet.
struct Body<'a>(&'a [u8]);

impl<'a> Body<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(taken)
    }

    fn array<const COUNT: usize>(&mut self) -> Option<[u8; COUNT]> {
        self.bytes(COUNT)?.try_into().ok()
    }

    fn number(&mut self) -> Option<u64> {
        self.array().map(u64::from_le_bytes)
    }

    fn purpose(&mut self) -> Option<Purpose> {
        let [purpose] = self.array()?;
        match (purpose, u16::from_le_bytes(self.array()?)) {
            (0, 0) => Some(Purpose::Control),
            (1, core) => Some(Purpose::Core(core)),
            _ => None,
        }
    }

    fn challenge(&mut self) -> Option<Challenge> {
        Some(Challenge { node: self.number()?, incarnation: self.number()?, nonce: self.array()? })
    }

    fn refusal(&mut self) -> Option<Refused> {
        let [code] = self.array()?;
        let (first, second) = (self.number()?, self.number()?);
        Some(match code {
            OTHER_VERSION => Refused::OtherVersion { theirs: u16::try_from(first).ok()? },
            OTHER_CLUSTER => Refused::OtherCluster,
            OTHER_NODE => Refused::OtherNode { wanted: first, found: second },
            OTHER_SECRET => Refused::OtherSecret,
            ITSELF => Refused::Itself,
            SAME_NODE => Refused::SameNode { node: first },
            NO_SUCH_CORE => Refused::NoSuchCore { core: u16::try_from(first).ok()? },
            _ => return None,
        })
    }
}
