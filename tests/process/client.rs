//! A plain HTTP/1.1 client on one blocking connection: it writes what it is given and reads answers one by one.

use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::time::Duration;

use serde_json::Value;
use socket2::SockRef;

/// How long an answer may take where the test says nothing else.
const ANSWER_MAX: Duration = Duration::from_secs(20);

/// One answer.
#[derive(Debug)]
pub struct Answer {
    /// Its status; 100 for an interim one.
    pub status: u16,
    /// Status line and header lines, as they came.
    pub head: String,
    /// Its body.
    pub body: Vec<u8>,
}

impl Answer {
    /// Takes the first answer off the front of `input`, when it is all there.
    pub fn take(input: &mut Vec<u8>, has_body: bool) -> Option<Self> {
        let head_bytes = input.windows(4).position(|bytes| bytes == b"\r\n\r\n")? + 4;
        let head = String::from_utf8(input[..head_bytes].to_vec()).expect("an ASCII head");
        let status = head.split(' ').nth(1).and_then(|text| text.parse().ok()).unwrap_or_else(|| panic!("no status: {head}"));
        let mut answer = Self { status, head, body: Vec::new() };
        let length = answer.header("content-length").map_or(0, |text| text.parse().expect("a length"));
        let end = head_bytes + if has_body { length } else { 0 };
        if input.len() < end {
            return None;
        }
        answer.body = input[head_bytes..end].to_vec();
        input.drain(..end);
        Some(answer)
    }

    /// The next answer of a stream, of which `input` is what was read before. `UnexpectedEof` when it ends instead.
    pub fn read(stream: &mut impl io::Read, input: &mut Vec<u8>, has_body: bool) -> io::Result<Self> {
        loop {
            if let Some(answer) = Self::take(input, has_body) {
                return Ok(answer);
            }
            let mut piece = [0; 64 << 10];
            match stream.read(&mut piece)? {
                0 => return Err(ErrorKind::UnexpectedEof.into()),
                count => input.extend_from_slice(&piece[..count]),
            }
        }
    }

    /// A header's value.
    pub fn header(&self, name: &str) -> Option<&str> {
        let lines = self.head.lines().skip(1).filter_map(|line| line.split_once(':'));
        lines.filter(|(key, _)| key.eq_ignore_ascii_case(name)).map(|(_, value)| value.trim()).next()
    }

    /// Whether the connection ends with this answer.
    pub fn closes(&self) -> bool {
        self.header("connection").is_some_and(|value| value.eq_ignore_ascii_case("close"))
    }

    /// The body as JSON.
    #[track_caller]
    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }

    /// The messages of a pop's answer.
    #[track_caller]
    pub fn messages(&self) -> Vec<Value> {
        assert_eq!(self.status, 200, "{self:?}");
        self.json()["messages"].as_array().expect("messages").clone()
    }

    /// Asserts that this is a failure of exactly `error` and `code`.
    #[track_caller]
    pub fn assert_failure(&self, status: u16, code: &str) {
        assert_eq!(self.status, status, "{self:?}");
        let body = self.json();
        let keys: Vec<_> = body.as_object().expect("an object").keys().map(String::as_str).collect();
        assert_eq!(keys, ["code", "error"], "{body}");
        assert_eq!(body["code"], code, "{body}");
        assert!(body["error"].as_str().is_some_and(|prose| !prose.is_empty()), "{body}");
        assert_eq!(self.header("content-type"), Some("application/json"), "{self:?}");
    }
}

/// One connection.
pub struct Client {
    /// The socket, for what only a test does.
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    /// Connects.
    #[track_caller]
    pub fn connect(address: SocketAddr) -> Self {
        Self::over(TcpStream::connect(address).expect("connects"))
    }

    /// Over a socket that is connected.
    pub fn over(stream: TcpStream) -> Self {
        stream.set_nodelay(true).expect("a socket");
        stream.set_read_timeout(Some(ANSWER_MAX)).expect("a socket");
        stream.set_write_timeout(Some(ANSWER_MAX)).expect("a socket");
        Self { stream, input: Vec::new() }
    }

    /// Writes bytes.
    #[track_caller]
    pub fn send(&mut self, bytes: impl AsRef<[u8]>) {
        self.stream.write_all(bytes.as_ref()).expect("takes the request");
    }

    /// Writes a request and reads its answer.
    #[track_caller]
    pub fn ask(&mut self, request: impl AsRef<[u8]>) -> Answer {
        self.send(request);
        self.answer()
    }

    /// The next answer.
    #[track_caller]
    pub fn answer(&mut self) -> Answer {
        self.next(true).unwrap_or_else(|error| panic!("no answer: {error}; read so far {:?}", String::from_utf8_lossy(&self.input)))
    }

    /// The next answer, of a HEAD: without its body.
    #[track_caller]
    pub fn answer_to_head(&mut self) -> Answer {
        self.next(false).expect("an answer")
    }

    /// The next answer. `UnexpectedEof` when the node closed instead, `WouldBlock` when none has come in time.
    pub fn next(&mut self, has_body: bool) -> io::Result<Answer> {
        Answer::read(&mut self.stream, &mut self.input, has_body)
    }

    /// The next answer when it is already here. The socket must not block.
    #[track_caller]
    pub fn arrived(&mut self) -> Option<Answer> {
        match self.next(true) {
            Ok(answer) => Some(answer),
            Err(error) if error.kind() == ErrorKind::WouldBlock => None,
            Err(error) => panic!("closed without an answer: {error}"),
        }
    }

    /// Asserts that the node ends the connection within `limit`, by its FIN and without another byte.
    #[track_caller]
    pub fn assert_ended_within(&mut self, limit: Duration) {
        self.stream.set_read_timeout(Some(limit)).expect("a socket");
        assert!(self.input.is_empty(), "{:?}", String::from_utf8_lossy(&self.input));
        let mut piece = [0; 1024];
        let count = self.stream.read(&mut piece).expect("a FIN");
        assert_eq!(count, 0, "{:?}", String::from_utf8_lossy(&piece[..count]));
    }

    /// Ends the connection by a reset.
    pub fn reset(self) {
        SockRef::from(&self.stream).set_linger(Some(Duration::ZERO)).expect("a socket");
    }

    /// Sends FIN; what the node sends can still be read.
    pub fn finish(&self) {
        self.stream.shutdown(Shutdown::Write).expect("a socket");
    }
}

/// A GET.
pub fn get(target: &str) -> String {
    format!("GET {target} HTTP/1.1\r\nHost: h\r\n\r\n")
}

/// A POST with a body.
pub fn post(target: &str, body: &str) -> String {
    format!("POST {target} HTTP/1.1\r\nHost: h\r\nContent-Length: {}\r\n\r\n{body}", body.len())
}

/// A pop; `more` begins with `&`.
pub fn pop(queue: &str, more: &str) -> String {
    get(&format!("/api/v1/ephemeral/pop?queue={queue}{more}"))
}

/// A push of payloads, which are JSON.
pub fn push<T: std::fmt::Display>(queue: &str, partition: &str, payloads: impl IntoIterator<Item = T>) -> String {
    let messages: Vec<_> = payloads.into_iter().map(|payload| format!(r#"{{"payload":{payload}}}"#)).collect();
    let body = format!(r#"{{"queue":"{queue}","partition":"{partition}","messages":[{}]}}"#, messages.join(","));
    post("/api/v1/ephemeral/push", &body)
}
