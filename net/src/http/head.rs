//! What a whole head says: method, target, framing of the body, and whether the connection lives on.
//!
//! Grammar is httparse's, which is lenient about line ends; bare LF is refused here. Meaning is RFC 9112's, with every
//! choice that it leaves to a server taken the strict way.

use std::mem::MaybeUninit;

use super::{Fault, HEADER_LINES_MAX, Limits};

/// A request's method. Any token is one: what is allowed is a matter of the route.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    Get,
    /// HEAD.
    Head,
    /// POST.
    Post,
    /// PUT.
    Put,
    /// DELETE.
    Delete,
    /// OPTIONS.
    Options,
    /// Any other token.
    Other,
}

impl Method {
    /// Methods are case-sensitive (RFC 9110 9.1).
    fn of(token: &str) -> Self {
        match token {
            "GET" => Self::Get,
            "HEAD" => Self::Head,
            "POST" => Self::Post,
            "PUT" => Self::Put,
            "DELETE" => Self::Delete,
            "OPTIONS" => Self::Options,
            _ => Self::Other,
        }
    }
}

/// A request's version.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Version {
    /// HTTP/1.0.
    Http10,
    /// HTTP/1.1.
    Http11,
}

/// A head that was accepted. Everything is borrowed from the bytes that held it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head<'a> {
    /// The method.
    pub method: Method,
    /// The target as sent; valid UTF-8.
    pub target: &'a [u8],
    /// The target's path, still encoded: begins with `/`, except for the `*` of OPTIONS and the authority of CONNECT.
    pub path: &'a [u8],
    /// What follows the target's `?`, still encoded.
    pub query: Option<&'a [u8]>,
    /// The version.
    pub version: Version,
    /// Whether the connection lives on after the answer.
    pub keep_alive: bool,
    fields: &'a [u8],
}

impl<'a> Head<'a> {
    /// The first value of a header, without the white space around it. Names match in any case.
    /// It looks through the header lines: meant for the one or two that a request needs.
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&'a [u8]> {
        self.fields().find(|(found, _)| found.eq_ignore_ascii_case(name.as_bytes())).map(|(_, value)| value)
    }

    /// All header lines, in order, as name and value.
    #[must_use]
    pub fn fields(&self) -> Fields<'a> {
        Fields { lines: self.fields }
    }
}

/// The header lines of a [`Head`]: name as sent, value without the white space around it.
#[derive(Clone, Debug)]
pub struct Fields<'a> {
    lines: &'a [u8],
}

impl<'a> Iterator for Fields<'a> {
    type Item = (&'a [u8], &'a [u8]);

    fn next(&mut self) -> Option<Self::Item> {
        // The parser saw to it: every line has a colon and ends in CRLF, and an empty one is the last.
        let colon_at = self.lines.iter().position(|byte| *byte == b':')?;
        let (name, after) = (&self.lines[..colon_at], &self.lines[colon_at + 1..]);
        let end = after.iter().position(|byte| *byte == b'\r')?;
        self.lines = after.get(end + 2..).unwrap_or_default();
        Some((name, after[..end].trim_ascii()))
    }
}

/// How long a request's body is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Length {
    /// `Content-Length`, or 0 without any. Saturated: more than fits is more than any limit.
    Declared(u64),
    /// `Transfer-Encoding: chunked`.
    Chunked,
}

/// A head with what the reader needs to go on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Parsed<'a> {
    pub(super) head: Head<'a>,
    /// Bytes of the head, its empty line included.
    pub(super) head_bytes: usize,
    pub(super) length: Length,
    /// The client waits for an interim answer before it sends its body.
    pub(super) expects_continue: bool,
}

/// Parses the head at the beginning of `bytes`, which begins with a request line. `None`: no whole head is there.
pub(super) fn parse<'a>(bytes: &'a [u8], limits: &Limits) -> Result<Option<Parsed<'a>>, Fault> {
    let mut lines = [const { MaybeUninit::<httparse::Header<'a>>::uninit() }; HEADER_LINES_MAX];
    let mut request = httparse::Request::new(&mut []);
    let most = limits.header_lines.min(HEADER_LINES_MAX);
    let head_bytes = match request.parse_with_uninit_headers(bytes, &mut lines[..most]) {
        Ok(httparse::Status::Complete(count)) => count,
        Ok(httparse::Status::Partial) => return Ok(None),
        Err(error) => return Err(grammar_fault(error, bytes)),
    };
    let (Some(method), Some(target), Some(version)) = (request.method, request.path, request.version) else {
        return Ok(None);
    };
    let target = target.as_bytes();
    if head_bytes > limits.head_bytes {
        return Err(Fault::HeadTooLarge);
    }
    if target.len() > limits.target_bytes {
        return Err(Fault::TargetTooLong);
    }
    if has_bare_lf(&bytes[..head_bytes]) {
        return Err(Fault::Malformed("a line of the head ends in a bare LF"));
    }
    let version = if version == 0 { Version::Http10 } else { Version::Http11 };
    let notes = Notes::of(request.headers)?;
    let (path, query) = split_target(method, target)?;
    // One space after the method, one after the target, then `HTTP/1.x` and its CRLF: the parser allows nothing else.
    let fields_at = method.len() + target.len() + 12;
    let head = Head {
        method: Method::of(method),
        target,
        path,
        query,
        version,
        keep_alive: notes.keeps_alive(version),
        fields: bytes.get(fields_at..head_bytes).unwrap_or_default(),
    };
    let expects_continue = notes.expects_continue && version == Version::Http11;
    Ok(Some(Parsed { head, head_bytes, length: notes.length(version)?, expects_continue }))
}

/// Compared pairwise and without an early exit, so that it is vectorised.
fn has_bare_lf(head: &[u8]) -> bool {
    let after_first = head.get(1..).unwrap_or_default();
    head.iter().zip(after_first).fold(false, |found, (before, byte)| found | ((*byte == b'\n') & (*before != b'\r')))
}

fn grammar_fault(error: httparse::Error, bytes: &[u8]) -> Fault {
    match error {
        httparse::Error::TooManyHeaders => Fault::HeadTooLarge,
        httparse::Error::Version if names_other_version(bytes) => Fault::VersionUnsupported,
        httparse::Error::Version => Fault::Malformed("the request line has no HTTP version"),
        httparse::Error::HeaderName => Fault::Malformed("a header line has no valid name before its colon"),
        httparse::Error::HeaderValue => Fault::Malformed("a header value holds a control character"),
        httparse::Error::NewLine => Fault::Malformed("a line of the head does not end in CRLF"),
        httparse::Error::Token | httparse::Error::Status => Fault::Malformed("the request line is no method, target and version"),
    }
}

/// Whether the request line ends in a well-formed version, `HTTP/` digit `.` digit (which then is none that is spoken here).
fn names_other_version(bytes: &[u8]) -> bool {
    let line = bytes.split(|byte| *byte == b'\r').next().unwrap_or_default();
    let version = line.splitn(3, |byte| *byte == b' ').nth(2).unwrap_or_default();
    matches!(version, [b'H', b'T', b'T', b'P', b'/', major, b'.', minor] if major.is_ascii_digit() && minor.is_ascii_digit())
}

/// Path and query of a target (RFC 9112 3.2).
fn split_target<'a>(method: &str, target: &'a [u8]) -> Result<(&'a [u8], Option<&'a [u8]>), Fault> {
    const MALFORMED: Fault = Fault::Malformed("the request target has no valid form");
    if target.contains(&b'#') {
        return Err(MALFORMED);
    }
    let origin = match target {
        _ if method == "CONNECT" => return if is_authority(target) { Ok((target, None)) } else { Err(MALFORMED) },
        [b'/', ..] => target,
        b"*" if method == "OPTIONS" => return Ok((target, None)),
        _ => {
            let after_scheme = after_http_scheme(target).ok_or(MALFORMED)?;
            let authority_bytes = after_scheme.iter().position(|byte| matches!(byte, b'/' | b'?')).unwrap_or(after_scheme.len());
            let (authority, rest) = after_scheme.split_at(authority_bytes);
            if authority.is_empty() || !is_authority(authority) {
                return Err(MALFORMED);
            }
            rest
        }
    };
    let (path, query) = match origin.iter().position(|byte| *byte == b'?') {
        Some(at) => (&origin[..at], Some(&origin[at + 1..])),
        None => (origin, None),
    };
    Ok((if path.is_empty() { b"/" } else { path }, query))
}

fn after_http_scheme(target: &[u8]) -> Option<&[u8]> {
    ["http://", "https://"].iter().find_map(|scheme| {
        let (start, rest) = target.split_at_checked(scheme.len())?;
        start.eq_ignore_ascii_case(scheme.as_bytes()).then_some(rest)
    })
}

/// Whether every byte may stand in a host and port (RFC 3986 3.2). User information is refused with its `@` (RFC 9110 4.2.4).
fn is_authority(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| byte.is_ascii_alphanumeric() || b"-._~%!$&'()*+,;=:[]".contains(byte))
}

/// What the header lines say about the message itself.
#[derive(Clone, Copy, Debug, Default)]
struct Notes {
    has_host: bool,
    content_length: Option<u64>,
    transfer_encoding: Option<Coding>,
    says_close: bool,
    says_keep_alive: bool,
    expects_continue: bool,
}

/// A `Transfer-Encoding` as far as it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Coding {
    /// `chunked` and nothing else.
    Chunked,
    /// Others, then `chunked` once: a proper message in a coding that is not implemented.
    ManyThenChunked,
    /// The body's end cannot be told.
    Unframed,
}

impl Notes {
    fn of(lines: &[httparse::Header<'_>]) -> Result<Self, Fault> {
        let mut notes = Self::default();
        for line in lines {
            notes.read(line.name, line.value.trim_ascii())?;
        }
        Ok(notes)
    }

    fn read(&mut self, name: &str, value: &[u8]) -> Result<(), Fault> {
        let is = |wanted: &str| name.eq_ignore_ascii_case(wanted);
        // Most lines are settled by the length of their name.
        match name.len() {
            4 if is("host") => {
                refuse_if(std::mem::replace(&mut self.has_host, true), "Host is given twice")?;
                refuse_if(!is_authority(value), "Host is no host and port")?;
            }
            6 if is("expect") => self.expects_continue |= value.eq_ignore_ascii_case(b"100-continue"),
            10 if is("connection") => {
                for option in list(value) {
                    self.says_close |= option.eq_ignore_ascii_case(b"close");
                    self.says_keep_alive |= option.eq_ignore_ascii_case(b"keep-alive");
                }
            }
            14 if is("content-length") => {
                let before = self.content_length.replace(decimal(value)?);
                refuse_if(before.is_some(), "Content-Length is given twice")?;
            }
            17 if is("transfer-encoding") => {
                let coding = if self.transfer_encoding.is_some() { Coding::Unframed } else { coding(value) };
                self.transfer_encoding = Some(coding);
            }
            _ => {}
        }
        Ok(())
    }

    fn keeps_alive(&self, version: Version) -> bool {
        !self.says_close && (version == Version::Http11 || self.says_keep_alive)
    }

    /// RFC 9112 3.2 and 6.3.
    fn length(&self, version: Version) -> Result<Length, Fault> {
        if version == Version::Http11 && !self.has_host {
            return Err(Fault::Malformed("Host is missing"));
        }
        match (self.transfer_encoding, self.content_length) {
            (None, length) => Ok(Length::Declared(length.unwrap_or(0))),
            (Some(_), Some(_)) => Err(Fault::Malformed("Content-Length and Transfer-Encoding are given both")),
            (Some(_), None) if version == Version::Http10 => Err(Fault::Malformed("HTTP/1.0 has no Transfer-Encoding")),
            (Some(Coding::Chunked), None) => Ok(Length::Chunked),
            (Some(Coding::ManyThenChunked), None) => Err(Fault::TransferCodingUnsupported),
            (Some(Coding::Unframed), None) => Err(Fault::Malformed("Transfer-Encoding does not end in one chunked")),
        }
    }
}

fn refuse_if(is_malformed: bool, what: &'static str) -> Result<(), Fault> {
    if is_malformed { Err(Fault::Malformed(what)) } else { Ok(()) }
}

/// The members of a comma-separated value, empty ones included.
fn list(value: &[u8]) -> impl Iterator<Item = &[u8]> {
    value.split(|byte| *byte == b',').map(<[u8]>::trim_ascii)
}

/// A `Content-Length`: digits and nothing else, no list. Saturates.
fn decimal(value: &[u8]) -> Result<u64, Fault> {
    if value.is_empty() || !value.iter().all(u8::is_ascii_digit) {
        return Err(Fault::Malformed("Content-Length is no number"));
    }
    Ok(value.iter().fold(0_u64, |number, digit| number.saturating_mul(10).saturating_add(u64::from(digit - b'0'))))
}

fn coding(value: &[u8]) -> Coding {
    let chunked_count = list(value).filter(|name| name.eq_ignore_ascii_case(b"chunked")).count();
    let ends_chunked = list(value).last().is_some_and(|name| name.eq_ignore_ascii_case(b"chunked"));
    match (ends_chunked, chunked_count, list(value).count()) {
        (true, 1, 1) => Coding::Chunked,
        (true, 1, _) => Coding::ManyThenChunked,
        _ => Coding::Unframed,
    }
}
