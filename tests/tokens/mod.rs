//! Tokens as a test wants them, and keys that were made for tests alone.

#![allow(dead_code, unreachable_pub, reason = "shared by test files that each use a part")]

use std::time::SystemTime;

use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
use serde_json::{Value, json};

/// The secret of HS tokens.
pub const SECRET: &str = "a secret that is long enough for HS256 and for no other use";
/// An RSA key pair.
pub const RSA: &[u8] = include_bytes!("rsa.pem");
/// Its public half.
pub const RSA_PUBLIC: &str = include_str!("rsa.pub.pem");
/// Its public half as a JWK named `rsa`.
pub const RSA_JWK: &str = include_str!("rsa.jwk.json");
/// Another RSA key pair.
pub const OTHER_RSA: &[u8] = include_bytes!("other-rsa.pem");
/// Its public half as a JWK named `other-rsa`.
pub const OTHER_RSA_JWK: &str = include_str!("other-rsa.jwk.json");
/// An Ed25519 key pair.
pub const ED: &[u8] = include_bytes!("ed.pem");
/// Its public half.
pub const ED_PUBLIC: &str = include_str!("ed.pub.pem");
/// Its public half as a JWK named `ed`.
pub const ED_JWK: &str = include_str!("ed.jwk.json");

/// Seconds since 1970.
pub fn now() -> i64 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).expect("a clock").as_secs() as i64
}

/// Claims of a role that hold for an hour, with `more` over them; a null takes a claim away.
pub fn claims(role: &str, more: Value) -> Value {
    let mut claims = json!({ "role": role, "exp": now() + 3600 });
    for (name, value) in more.as_object().expect("an object") {
        if value.is_null() {
            claims.as_object_mut().expect("an object").remove(name);
        } else {
            claims[name] = value.clone();
        }
    }
    claims
}

/// A token signed with this key.
pub fn sign(algorithm: Algorithm, kid: Option<&str>, key: &EncodingKey, claims: &Value) -> String {
    let header = Header { kid: kid.map(str::to_owned), ..Header::new(algorithm) };
    encode(&header, claims, key).expect("signs")
}

/// An HS256 token of [`SECRET`].
pub fn token(role: &str, more: Value) -> String {
    sign(Algorithm::HS256, None, &secret(SECRET), &claims(role, more))
}

/// A key of HS algorithms.
pub fn secret(text: &str) -> EncodingKey {
    EncodingKey::from_secret(text.as_bytes()).expect("a secret")
}

/// The private half of an RSA key pair.
pub fn rsa(pem: &[u8]) -> EncodingKey {
    EncodingKey::from_rsa_pem(pem).expect("a key")
}

/// The private half of [`ED`].
pub fn ed() -> EncodingKey {
    EncodingKey::from_ed_pem(ED).expect("a key")
}
