//! Tokens of every kind, at chosen times.

use jsonwebtoken::Algorithm;
use serde_json::{Value, json};

use super::settings::Secret;
use super::token::Rights;
use super::*;
use tokens::{claims, ed, now, rsa, secret, sign, token};

#[path = "../../tests/tokens/mod.rs"]
mod tokens;

fn keyed(algorithms: &[Algorithm]) -> TokenSettings {
    let has = |one: &[Algorithm]| algorithms.iter().any(|algorithm| one.contains(algorithm));
    let public_key = if has(&[Algorithm::EdDSA]) { tokens::ED_PUBLIC } else { tokens::RSA_PUBLIC };
    TokenSettings {
        is_enabled: true,
        algorithms: algorithms.to_vec(),
        secret: Some(Secret(tokens::SECRET.to_owned())),
        public_key: (!has(&[Algorithm::HS256, Algorithm::HS384, Algorithm::HS512])).then(|| public_key.to_owned()),
        clock_skew: Duration::ZERO,
        ..TokenSettings::default()
    }
}

fn bearers(settings: &TokenSettings) -> Bearers {
    match Authority::open(&Source::Token(Box::new(settings.clone()))) {
        Ok(Authority::Token(authority)) => Bearers::new(authority),
        other => panic!("{other:?}"),
    }
}

fn outcome(settings: &TokenSettings, token: &str) -> Result<(Tenant, Rights), TokenFault> {
    bearers(settings).grantee(token.as_bytes(), now()).map(|grantee| (grantee.tenant, grantee.rights))
}

fn rights(may_read: bool, may_write: bool, is_admin: bool) -> [bool; 5] {
    [true, may_read, may_write, may_read && may_write, is_admin]
}

fn allowed(rights: Rights) -> [bool; 5] {
    [Access::Public, Access::ReadOnly, Access::WriteOnly, Access::ReadWrite, Access::Admin].map(|access| rights.allow(access))
}

#[test]
fn exactly_the_configured_algorithm_is_accepted() {
    let key = |algorithm: Algorithm| match algorithm {
        Algorithm::HS256 | Algorithm::HS384 | Algorithm::HS512 => secret(tokens::SECRET),
        Algorithm::EdDSA => ed(),
        _ => rsa(tokens::RSA),
    };
    for configured in settings::ALGORITHMS {
        for signed in settings::ALGORITHMS {
            let token = sign(signed, None, &key(signed), &claims("admin", json!({})));
            let wanted = if configured == signed { None } else { Some(TokenFault::Algorithm) };
            assert_eq!(outcome(&keyed(&[configured]), &token).err(), wanted, "{signed:?} where {configured:?} is configured");
        }
    }
    let both = keyed(&[Algorithm::RS256, Algorithm::RS512]);
    for (signed, wanted) in [(Algorithm::RS256, None), (Algorithm::RS384, Some(TokenFault::Algorithm)), (Algorithm::RS512, None)] {
        assert_eq!(outcome(&both, &sign(signed, None, &rsa(tokens::RSA), &claims("admin", json!({})))).err(), wanted);
    }
}

#[test]
fn a_public_key_is_no_secret_and_none_is_no_algorithm() {
    // The old trick: the published key as the secret of HS256.
    let forged = sign(Algorithm::HS256, None, &secret(tokens::RSA_PUBLIC), &claims("admin", json!({})));
    let auto = TokenSettings { algorithms: Vec::new(), public_key: Some(tokens::RSA_PUBLIC.to_owned()), ..keyed(&[Algorithm::HS256]) };
    assert_eq!(outcome(&auto, &forged).err(), Some(TokenFault::Signature));
    let only_public = TokenSettings { secret: None, ..auto.clone() };
    assert_eq!(outcome(&only_public, &forged).err(), Some(TokenFault::Algorithm));
    let (_, body) = forged.split_once('.').expect("three parts");
    let payload = body.split('.').next().expect("a payload");
    for header in ["eyJhbGciOiJub25lIn0", "eyJhbGciOiJOT05FIiwidHlwIjoiSldUIn0"] {
        for signature in ["", "AAAA"] {
            assert_eq!(outcome(&auto, &format!("{header}.{payload}.{signature}")).err(), Some(TokenFault::Malformed));
        }
    }
    for nonsense in ["", ".", "..", "...", "a.b.c", "Bearer", "é", &"x".repeat(20_000)] {
        assert_eq!(outcome(&auto, nonsense).err(), Some(TokenFault::Malformed), "{nonsense:.20}");
    }
}

#[test]
fn what_a_token_says_is_checked_claim_by_claim() {
    let settings = TokenSettings {
        issuer: Some("idp".to_owned()),
        audience: Some("mayfly".to_owned()),
        clock_skew: Duration::from_secs(30),
        ..keyed(&[Algorithm::HS256])
    };
    let fault = |more: Value| {
        let mut all = json!({ "iss": "idp", "aud": "mayfly" });
        more.as_object().expect("an object").iter().for_each(|(name, value)| all[name] = value.clone());
        outcome(&settings, &token("admin", all)).err()
    };
    let now = now();
    let table = [
        (json!({}), None),
        (json!({ "aud": ["other", "mayfly"] }), None),
        (json!({ "exp": now - 20 }), None),
        (json!({ "exp": now - 31 }), Some(TokenFault::Expired)),
        (json!({ "exp": now as f64 + 0.5 }), None),
        (json!({ "exp": null }), None),
        (json!({ "exp": "tomorrow" }), Some(TokenFault::Claim)),
        (json!({ "nbf": now + 20 }), None),
        (json!({ "nbf": now + 60 }), Some(TokenFault::NotYetValid)),
        (json!({ "nbf": [] }), Some(TokenFault::Claim)),
        (json!({ "iss": "other" }), Some(TokenFault::Issuer)),
        (json!({ "iss": null }), Some(TokenFault::Issuer)),
        (json!({ "iss": 7 }), Some(TokenFault::Issuer)),
        (json!({ "aud": "other" }), Some(TokenFault::Audience)),
        (json!({ "aud": null }), Some(TokenFault::Audience)),
        (json!({ "aud": {} }), Some(TokenFault::Audience)),
        (json!({ "tenant": "00000000-0000-0000-0000-0000000000aa" }), None),
        (json!({ "tenant": "aa" }), Some(TokenFault::Claim)),
        (json!({ "tenant": "" }), Some(TokenFault::Claim)),
        (json!({ "tenant": 1 }), Some(TokenFault::Claim)),
    ];
    for (more, wanted) in table {
        assert_eq!(fault(more.clone()), wanted, "{more}");
    }
    let other = sign(Algorithm::HS256, None, &secret("another"), &claims("admin", json!({ "iss": "idp", "aud": "mayfly" })));
    assert_eq!(outcome(&settings, &other).err(), Some(TokenFault::Signature));
    let any = keyed(&[Algorithm::HS256]);
    assert_eq!(outcome(&any, &token("admin", json!({ "aud": "other", "iss": "other" }))).err(), None, "where none is configured, any");
}

#[test]
fn roles_come_as_text_as_a_list_or_from_within_an_object_and_add_up() {
    let table = [
        (json!({ "role": "admin" }), rights(true, true, true)),
        (json!({ "role": "read-write" }), rights(true, true, false)),
        (json!({ "role": "read-only" }), rights(true, false, false)),
        (json!({ "role": "write-only" }), rights(false, true, false)),
        (json!({ "role": null, "roles": ["read-only", "other", 7] }), rights(true, false, false)),
        (json!({ "role": "read-only", "roles": ["write-only"] }), rights(true, true, false)),
        (json!({ "role": "Admin" }), rights(false, false, false)),
        (json!({ "role": "read-only write-only" }), rights(false, false, false)),
        (json!({ "role": { "admin": true } }), rights(false, false, false)),
        (json!({ "role": null }), rights(false, false, false)),
    ];
    let settings = keyed(&[Algorithm::HS256]);
    for (more, wanted) in table {
        let (_, found) = outcome(&settings, &token("", more.clone())).expect("holds");
        assert_eq!(allowed(found), wanted, "{more}");
    }
    let within = TokenSettings {
        roles_claims: vec!["realm.roles".to_owned(), "https://example.com/role".to_owned()],
        tenant_claim: "org.id".to_owned(),
        ..settings
    };
    let tenant = Tenant(0xaa);
    let nested = token("admin", json!({ "realm": { "roles": ["read-only"] }, "org": { "id": tenant.to_string() } }));
    assert_eq!(outcome(&within, &nested).map(|(tenant, rights)| (tenant, allowed(rights))), Ok((tenant, rights(true, false, false))));
    let whole = token("", json!({ "https://example.com/role": "write-only" }));
    assert_eq!(outcome(&within, &whole).map(|(_, rights)| allowed(rights)), Ok(rights(false, true, false)));
}

#[test]
fn a_token_that_was_kept_ends_when_it_says_and_an_earlier_clock_does_not_bring_it_back_to_life_too_soon() {
    let mut bearers = bearers(&keyed(&[Algorithm::HS256]));
    let now = now();
    let token = token("admin", json!({ "exp": now + 100, "nbf": now - 100 }));
    for (at, wanted) in
        [(now, None), (now + 99, None), (now + 100, Some(TokenFault::Expired)), (now, None), (now - 101, Some(TokenFault::NotYetValid))]
    {
        assert_eq!(bearers.grantee(token.as_bytes(), at).err(), wanted, "{}", at - now);
        assert_eq!(bearers.grantee(token.as_bytes(), at).err(), wanted, "{} again", at - now);
    }
}

#[test]
fn bad_tokens_are_not_kept_and_push_no_good_one_out() {
    let mut bearers = bearers(&keyed(&[Algorithm::HS256]));
    let good = token("admin", json!({}));
    assert!(bearers.grantee(good.as_bytes(), now()).is_ok());
    for index in 0..5_000 {
        assert!(bearers.grantee(format!("{good}{index}").as_bytes(), now()).is_err());
    }
    assert!(bearers.cache.find(good.as_bytes()).is_some());
    assert!(bearers.cache.find(format!("{good}0").as_bytes()).is_none());
}

fn set(jwks: &[&str]) -> Vec<u8> {
    format!("{{\"keys\":[{}]}}", jwks.join(",")).into_bytes()
}

#[test]
fn published_keys_are_chosen_by_name_and_those_that_go_take_their_tokens_along() {
    let settings = TokenSettings { secret: None, public_key: None, jwks_url: None, ..keyed(&[Algorithm::RS256, Algorithm::EdDSA]) };
    let algorithms = settings.algorithms.clone();
    let ring = Arc::new(KeyRing::new(Keys::default()));
    let publish = |ring: &KeyRing, document: &[u8]| ring.keys().with_published(document).map(|keys| ring.replace(keys)).is_some();
    let authority =
        TokenAuthority { rules: Rules::new(&settings, algorithms), ring: Arc::clone(&ring), publishes: true, skip_paths: Vec::new() };
    let mut bearers = Bearers::new(Arc::new(authority));
    let claims = claims("admin", json!({}));
    let signed = |kid: Option<&str>, pem: &[u8]| sign(Algorithm::RS256, kid, &rsa(pem), &claims);
    let (first, second) = (signed(Some("rsa"), tokens::RSA), signed(Some("other-rsa"), tokens::OTHER_RSA));
    let crossed = signed(Some("other-rsa"), tokens::RSA);
    let unnamed = signed(None, tokens::RSA);
    let edwards = sign(Algorithm::EdDSA, Some("ed"), &ed(), &claims);
    let mut fault = |token: &str| bearers.grantee(token.as_bytes(), now()).err();
    assert_eq!(fault(&first), Some(TokenFault::UnknownKey));

    assert!(publish(&ring, &set(&[tokens::RSA_JWK, tokens::ED_JWK])));
    assert_eq!((fault(&first), fault(&edwards), fault(&unnamed)), (None, None, None));
    assert_eq!((fault(&second), fault(&crossed)), (Some(TokenFault::UnknownKey), Some(TokenFault::UnknownKey)));

    assert!(publish(&ring, &set(&[tokens::OTHER_RSA_JWK, tokens::RSA_JWK])));
    assert_eq!((fault(&first), fault(&second), fault(&crossed)), (None, None, Some(TokenFault::Signature)));
    assert_eq!(fault(&edwards), Some(TokenFault::UnknownKey), "its key is gone, so what was kept is too");

    assert!(publish(&ring, &set(&[tokens::OTHER_RSA_JWK])));
    assert_eq!((fault(&first), fault(&second)), (Some(TokenFault::UnknownKey), None));
    let renamed = tokens::OTHER_RSA_JWK.replace("\"kid\": \"other-rsa\"", "\"kid\": \"new\"");
    assert!(publish(&ring, &set(&[&renamed])));
    assert_eq!(fault(&second), Some(TokenFault::UnknownKey));

    let bad = [
        "",
        "[]",
        "{}",
        "{\"keys\":{}}",
        "{\"keys\":[]}",
        "{\"keys\":[{\"kty\":\"oct\",\"k\":\"AAAA\"}]}",
        "{\"keys\":[{\"kty\":\"RSA\"}]}",
    ];
    for document in bad {
        assert!(!publish(&ring, document.as_bytes()), "{document}");
    }
    let for_encryption = tokens::RSA_JWK.replace("\"use\": \"sig\"", "\"use\": \"enc\"");
    assert!(!publish(&ring, &set(&[&for_encryption])));
    let for_another = tokens::RSA_JWK.replace("\"use\": \"sig\"", "\"alg\": \"RS512\"");
    assert!(publish(&ring, &set(&[&for_another])));
    assert_eq!(fault(&first), Some(TokenFault::UnknownKey), "a key for RS512 checks no RS256");
}

#[test]
fn a_key_of_the_settings_that_cannot_be_used_is_named() {
    let refusal = |settings: TokenSettings| match Authority::open(&Source::Token(Box::new(settings))) {
        Err(unusable) => unusable.to_string(),
        Ok(_) => panic!("it was taken"),
    };
    let rsa = keyed(&[Algorithm::RS256]);
    let with_key = |key: &str| TokenSettings { public_key: Some(key.to_owned()), ..rsa.clone() };
    assert!(refusal(with_key("/no/such/file")).starts_with("--jwt-public-key: cannot read the file \"/no/such/file\": "));
    assert!(
        refusal(with_key("-----BEGIN PUBLIC KEY-----\nAAAA\n-----END PUBLIC KEY-----\n")).starts_with("--jwt-public-key: there is no ")
    );
    assert!(refusal(with_key(tokens::ED_PUBLIC)).starts_with("--jwt-public-key: it is an Ed25519 key"));
    let file = TokenSettings { secret: None, secret_file: Some("/no/such/file".into()), ..keyed(&[Algorithm::HS256]) };
    assert!(refusal(file).starts_with("--jwt-secret-file: cannot read the file "));
    // As one line of an environment file writes it.
    let one_line = with_key(&tokens::RSA_PUBLIC.replace('\n', "\\n"));
    let token = sign(Algorithm::RS256, None, &tokens::rsa(tokens::RSA), &claims("admin", json!({})));
    assert_eq!(outcome(&one_line, &token).err(), None);
}

#[test]
fn a_path_is_skipped_as_a_whole_or_below_one_that_ends_in_a_slash() {
    let settings = TokenSettings { skip_paths: ["/a", "/b/", "/"].map(str::to_owned).to_vec(), ..keyed(&[Algorithm::HS256]) };
    let bearers = bearers(&settings);
    for (path, wanted) in
        [("/a", true), ("/a/", false), ("/ab", false), ("/b", false), ("/b/", true), ("/b/c/d", true), ("/", true), ("/c", false)]
    {
        assert_eq!(bearers.authority.skips(path.as_bytes()), wanted, "{path}");
    }
}

#[test]
fn the_nodes_own_routes_are_for_admins_of_any_tenant_and_ask_for_no_tenant_header() {
    let admin_only = Endpoint { access: Access::Admin, ..crate::api::route::ENDPOINTS[0] };
    let identify = |identities: &mut Identities, lines: &str| {
        let text = format!("POST / HTTP/1.1\r\nHost: h\r\n{lines}\r\n");
        match mayfly_net::http::Reader::default().decode(&mut text.as_bytes(), &Default::default()) {
            mayfly_net::http::Decoded::Request(request) => identities.identify(&admin_only, &request.head),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(identify(&mut Identities::Header, ""), Ok(Tenant::DEFAULT));
    let mut identities = Identities::Token(Box::new(bearers(&keyed(&[Algorithm::HS256]))));
    let tenant = Tenant(0xaa).to_string();
    let line = |role: &str| format!("Authorization: Bearer {}\r\n", token(role, json!({ "tenant": tenant })));
    assert_eq!(identify(&mut identities, &line("admin")), Ok(Tenant(0xaa)));
    assert_eq!(identify(&mut identities, &line("read-write")), Err(Failure::Forbidden(Forbidden::Role)));
    let other = line("admin") + "X-Queen-Tenant: 00000000-0000-0000-0000-0000000000ab\r\n";
    assert_eq!(identify(&mut identities, &other), Err(Failure::Forbidden(Forbidden::OtherTenant)));
    assert_eq!(identify(&mut identities, ""), Err(Failure::Unauthorized(TokenFault::Missing)));
}
