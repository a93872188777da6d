//! A message's payload: the JSON text as it was pushed, byte for byte.

use std::sync::Arc;

/// The JSON text of one payload. Copied once, when it comes in; afterwards shared, so that one message sits in memory once however
/// many groups read it and whichever core answers.
pub type Payload = Arc<[u8]>;
